import { sandboxView } from "./columns.ts";
import { parseSeconds } from "./duration.ts";
import { formatsFrom } from "./format.ts";
import { value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { forEachSandbox, selectionOptions, selectSandboxes } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const touch = defineVerb({
  description: "The idle time counts from now again. A renewal that was acknowledged is honoured.",
  operands: "[ref...]",
  examples: ["dsec touch web-1", "dsec touch web-1 --ttl 2h", "dsec touch -l job=train-7"],
  options: {
    ...selectionOptions,
    ttl: value("--ttl <duration>", "also change the idle time it gets: 5m, 1h30m; 0 for never", parseSeconds),
  },
  formats: formatsFrom("name"),
  run: async ({ client }, options, operands) => {
    const fleet = await client();
    const refs = await selectSandboxes(fleet, operands, options, false);
    const renewal = options.ttl === undefined ? {} : { ttlRunningStop: options.ttl };
    const { rows, failures } = await forEachSandbox(refs, async (ref) =>
      (await fleet.get(ref)).touch(renewal),
    );
    return { type: "listing", listing: listingOf(sandboxView, rows), failures };
  },
});
