import { DSecError } from "../protocol/errors.ts";
import type { AuditEvent } from "../sdk/index.ts";
import { parseInstant } from "./duration.ts";
import { streamFormats } from "./format.ts";
import { flag, many, text } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { Listing, View } from "./outcome.ts";
import { defined } from "./sandbox-options.ts";
import { defineVerb } from "./verb.ts";

const kinds = ["exec", "connect", "exit", "lost"] as const;

const auditView: View<AuditEvent> = {
  columns: [
    { title: "TIME", width: 24, value: ({ time }) => new Date(time).toISOString() },
    {
      title: "KIND",
      width: 7,
      value: ({ kind }) => kind,
      tone: ({ kind }) => (kind === "lost" ? "bad" : undefined),
    },
    { title: "PID", width: 5, value: (event) => ("pid" in event ? String(event.pid) : "") },
    { title: "PARENT", width: 6, value: (event) => ("pid" in event ? String(event.parentPid) : "") },
    {
      title: "NODE-PID",
      wide: true,
      width: 8,
      value: (event) => ("pid" in event ? String(event.nodePid) : ""),
    },
    { title: "UID", width: 5, value: (event) => ("pid" in event ? String(event.uid) : "") },
    { title: "COMMAND", width: 15, value: (event) => ("pid" in event ? event.command : "") },
    { title: "WHAT", value: describe },
  ],
  name: ({ sequence }) => String(sequence),
};

export const audit = defineVerb({
  description:
    "Programs executed, connections tried and ends of processes, as the node's kernel tells it, oldest first; of nodes that were\n" +
    "started with --audit. Kept are the last 2,048 of each kind, until its record is forgotten or its daemon ends.",
  operands: "<ref>",
  examples: ["dsec audit -f web-1", "dsec audit --since 5m --kind connect web-1 -o ndjson"],
  options: {
    follow: flag("-f, --follow", "go on until it is interrupted or the sandbox has ended"),
    since: text("--since <time>", "only what is younger: 5m, or 2026-01-31T12:00:00Z"),
    kind: {
      ...many("--kind <kind>", `only of this kind: ${kinds.join("|")}; may be repeated`, parseKind),
      choices: kinds,
    },
  },
  formats: streamFormats,
  run: async ({ io, client }, options, [ref = ""]) => {
    const sandbox = await (await client()).get(ref);
    const since = options.since === undefined ? undefined : parseInstant(options.since, io.now());
    const events = sandbox.audit({ follow: options.follow, ...defined({ since }) });
    return { type: "stream", entries: entriesOf(events, options.kind) };
  },
});

function parseKind(given: string): AuditEvent["kind"] {
  const found = kinds.find((kind) => kind === given);
  if (found !== undefined) return found;
  throw new DSecError("invalid_argument", `${JSON.stringify(given)} is not one of ${kinds.join(", ")}`);
}

async function* entriesOf(
  events: AsyncIterable<AuditEvent>,
  wanted: readonly AuditEvent["kind"][],
): AsyncGenerator<Listing> {
  for await (const event of events)
    if (wanted.length === 0 || wanted.includes(event.kind)) yield listingOf(auditView, [event]);
}

function describe(event: AuditEvent): string {
  switch (event.kind) {
    case "exec":
      return `${quoted(event.path)}: ${event.argv.map(quoted).join(" ")}${event.truncated ? " …" : ""}`;
    case "connect": {
      const host = event.address.includes(":") ? `[${event.address}]` : event.address;
      return `${host}:${event.port}/${event.protocol}`;
    }
    case "exit":
      return event.signal === undefined ? `exit code ${event.exitCode}` : `signal ${event.signal}`;
    case "lost":
      return event.count === undefined ? "an unknown number of events" : `${event.count} events`;
  }
}

/** So that where an argument begins and ends can be seen. */
function quoted(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : JSON.stringify(argument);
}
