import { sandboxView } from "./columns.ts";
import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { flag } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { filterOf, filterOptions } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const ls = defineVerb({
  description:
    "Shows those that have not ended; --all, or --state with an ended state, shows the others too.",
  examples: [
    "dsec ls -l job=train-7 --state running",
    "dsec ls -a -o json | jq -r '.[] | select(.endReason == \"oom\") | .id'",
  ],
  options: {
    ...filterOptions,
    all: flag("-a, --all", "also those that have ended"),
    quiet: flag("-q, --quiet", "ids only: the same as -o name"),
  },
  formats: listingFormats,
  run: async ({ io, client }, options) => {
    const filter = { ...filterOf(options), ...(options.all ? { all: true } : {}) };
    const { items, unreachable } = await (await client()).list(filter);
    if (unreachable.length > 0)
      note(io, `no answer from ${unreachable.join(", ")}: the list lacks their sandboxes`);
    return {
      type: "listing",
      listing: listingOf(
        sandboxView,
        items.map(({ info }) => info),
      ),
      ...(options.quiet ? { format: "name" } : {}),
    };
  },
});
