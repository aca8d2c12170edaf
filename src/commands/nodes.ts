import { nodeView } from "./columns.ts";
import { listingFormats } from "./format.ts";
import { listingOf } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

export const nodes = defineVerb({
  description:
    "CPUS and MEMORY ASKED are what sandboxes asked for, of what the node has; more than it has is no mistake.",
  options: {},
  formats: listingFormats,
  run: async ({ client }) => ({
    type: "listing",
    listing: listingOf(nodeView, await (await client()).nodes()),
  }),
});
