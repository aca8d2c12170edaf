import { sandboxView } from "./columns.ts";
import { formatsFrom } from "./format.ts";
import { listingOf } from "./outcome.ts";
import { forEachSandbox, selectionOptions, selectSandboxes } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const inspect = defineVerb({
  description: "Shows spec, state, deadlines, and what is used now. JSON is a list, also for one sandbox.",
  operands: "[ref...]",
  examples: ["dsec inspect web-1 | jq '.[0].usage.memoryBytes'", "dsec inspect --all -o yaml"],
  options: selectionOptions,
  formats: formatsFrom("json"),
  run: async ({ client }, options, operands) => {
    const fleet = await client();
    const refs = await selectSandboxes(fleet, operands, options, true);
    const { rows, failures } = await forEachSandbox(refs, async (ref) => (await fleet.get(ref)).info);
    return { type: "listing", listing: listingOf(sandboxView, rows), failures };
  },
});
