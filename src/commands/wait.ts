import { DSecError } from "../protocol/errors.ts";
import { endedStates } from "../protocol/states.ts";
import { endView } from "./columns.ts";
import { formatDuration, parseDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { forEachSandbox, selectionOptions, selectSandboxes } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const wait = defineVerb({
  description:
    "Returns when all of them have ended, and shows why, with the exit code of the command each ended with.\n" +
    "Exit code 124 when the time given by --timeout is up before.",
  operands: "[ref...]",
  examples: ["dsec wait web-1", "dsec wait -l job=train-7 --timeout 1h -o json | jq -r '.[].endReason'"],
  options: {
    ...selectionOptions,
    timeout: value("--timeout <duration>", "give up after this time", parseDuration),
  },
  formats: listingFormats,
  run: async ({ client }, options, operands) => {
    const fleet = await client();
    const refs = await selectSandboxes(fleet, operands, options, false);
    const { timeout } = options;
    const { rows, failures } = await forEachSandbox(
      refs,
      async (ref) => {
        const sandbox = await fleet.get(ref);
        const info = await sandbox.wait(timeout === undefined ? {} : { timeoutMs: timeout });
        if (endedStates.includes(info.state)) return info;
        throw new DSecError(
          "exec_timeout",
          `${info.id} is still ${info.state} after ${formatDuration(timeout ?? 0)}`,
        );
      },
      refs.length,
    );
    return { type: "listing", listing: listingOf(endView, rows), failures };
  },
});
