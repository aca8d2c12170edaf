import type { WatchEvent } from "../protocol/sandbox.ts";
import { changeView } from "./columns.ts";
import { streamFormats } from "./format.ts";
import { note } from "./io.ts";
import type { Io } from "./io.ts";
import { flag } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { Listing } from "./outcome.ts";
import { filterOf, filterOptions } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const watch = defineVerb({
  description:
    "First the sandboxes there are, then every change, until it is interrupted. Goes on over lost connections.\n" +
    "-o ndjson also has the event `synced` after the first part.",
  examples: [
    "dsec watch -l job=train-7",
    "dsec watch -o ndjson | jq -r 'select(.type == \"changed\") | .sandbox.id'",
  ],
  options: { ...filterOptions, all: flag("-a, --all", "also those that have ended") },
  formats: streamFormats,
  run: async ({ io, client }, options) => {
    const filter = { ...filterOf(options), ...(options.all ? { all: true } : {}) };
    return { type: "stream", entries: entriesOf((await client()).watch(filter), io) };
  },
});

async function* entriesOf(events: AsyncIterable<WatchEvent>, io: Io): AsyncGenerator<Listing> {
  for await (const event of events) {
    switch (event.type) {
      case "snapshot":
      case "changed":
      case "removed":
        yield listingOf(changeView, [event]);
        break;
      case "synced":
        yield { ...listingOf(changeView, []), items: [event] };
        break;
      case "unreachable":
        note(io, `no answer from ${event.node}: its sandboxes are missing`);
        yield { ...listingOf(changeView, []), items: [event] };
        break;
      case "ping":
    }
  }
}
