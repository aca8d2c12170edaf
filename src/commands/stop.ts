import { endView } from "./columns.ts";
import { formatsFrom } from "./format.ts";
import { listingOf } from "./outcome.ts";
import { forEachSandbox, selectionOptions, selectSandboxes } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const stop = defineVerb({
  description:
    "Returns when nothing of them runs any more, and prints their ids. Stopping what has ended is no error.\n" +
    "Records, logs and exit codes stay readable for a while; `dsec rm` forgets them at once.",
  operands: "[ref...]",
  examples: ["dsec stop web-1 web-2", "dsec stop -l job=train-7", "dsec stop --all"],
  options: selectionOptions,
  formats: formatsFrom("name"),
  run: async ({ client }, options, operands) => {
    const fleet = await client();
    const refs = await selectSandboxes(fleet, operands, options, false);
    const { rows, failures } = await forEachSandbox(refs, async (ref) => (await fleet.get(ref)).stop());
    return { type: "listing", listing: listingOf(endView, rows), failures };
  },
});
