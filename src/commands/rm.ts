import { sandboxView } from "./columns.ts";
import { formatsFrom } from "./format.ts";
import { listingOf } from "./outcome.ts";
import { forEachSandbox, selectionOptions, selectSandboxes } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const rm = defineVerb({
  description:
    "Ends those that still run, without asking; then record, logs and exit code are gone and the name is free.\n" +
    "Filters also find those that have ended. Prints the ids.",
  operands: "[ref...]",
  examples: ["dsec rm web-1", "dsec rm --state stopped --state failed", "dsec rm --all"],
  options: selectionOptions,
  formats: formatsFrom("name"),
  run: async ({ client }, options, operands) => {
    const fleet = await client();
    const refs = await selectSandboxes(fleet, operands, options, true);
    const { rows, failures } = await forEachSandbox(refs, async (ref) => {
      const sandbox = await fleet.get(ref);
      await sandbox.remove();
      return sandbox.info;
    });
    return { type: "listing", listing: listingOf(sandboxView, rows), failures };
  },
});
