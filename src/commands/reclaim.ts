import { reclaimView } from "./columns.ts";
import { parseSeconds } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { flag, value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { filterOf, filterOptions } from "./selection.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

export const reclaim = defineVerb({
  description: "Idle are those in which no command runs. Shows what was freed, or would be with --dry-run.",
  examples: ["dsec reclaim --idle 10m --dry-run", "dsec reclaim -l job=train-7"],
  options: {
    ...filterOptions,
    idle: value("--idle <duration>", "only those that have been idle for this time", parseSeconds),
    dryRun: flag("--dry-run", "end nothing, only show"),
  },
  formats: listingFormats,
  run: async ({ io, client }, options) => {
    const {
      items,
      memoryBytes,
      diskBytes,
      unreachable = [],
    } = await (
      await client()
    ).reclaim({ filter: filterOf(options), idleFor: options.idle ?? 0, dryRun: options.dryRun });
    if (unreachable.length > 0) note(io, `no answer from ${unreachable.join(", ")}: nothing was ended there`);
    note(
      io,
      `${options.dryRun ? "would free" : "freed"} ${formatSize(memoryBytes)} of memory and ${formatSize(diskBytes)} of disk`,
    );
    return { type: "listing", listing: listingOf(reclaimView, items) };
  },
});
