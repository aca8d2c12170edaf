import { DSecError } from "../protocol/errors.ts";
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
    all: flag("-a, --all", "every idle one"),
    idle: value("--idle <duration>", "only those that have been idle for this time", parseSeconds),
    dryRun: flag("--dry-run", "end nothing, only show"),
  },
  formats: listingFormats,
  run: async ({ io, client }, options) => {
    const { idle, dryRun } = options;
    const filter = filterOf(options);
    if (Object.keys(filter).length === 0 && idle === undefined && !options.all && !dryRun)
      throw new DSecError("invalid_argument", "give --idle, a filter (-l, --state…) or --all");
    const request = { filter, idleFor: idle ?? 0, dryRun };
    const { items, memoryBytes, diskBytes, unreachable = [] } = await (await client()).reclaim(request);
    if (unreachable.length > 0) note(io, `no answer from ${unreachable.join(", ")}: nothing was ended there`);
    note(
      io,
      `${dryRun ? "would free" : "freed"} ${formatSize(memoryBytes)} of memory and ${formatSize(diskBytes)} of disk`,
    );
    return { type: "listing", listing: listingOf(reclaimView, items) };
  },
});
