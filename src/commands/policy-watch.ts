import type { NetworkDecision } from "../protocol/network-decision.ts";
import { parseInstant } from "./duration.ts";
import { listingFormats, streamFormats } from "./format.ts";
import { flag, text } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { Listing } from "./outcome.ts";
import { decisionView, findingView } from "./policy-views.ts";
import type { Finding } from "./policy-views.ts";
import { defined } from "./sandbox-options.ts";
import { defineVerb } from "./verb.ts";

export const testPolicy = defineVerb({
  description:
    "Whether a sandbox may connect there, and by which rule. Asks the node's resolver for names and connects to nothing.\n" +
    "Exits with 0 where at least one address can be reached, else with 1.",
  operands: "<ref> <host:port[/protocol]>",
  examples: ["dsec policy test web-1 pypi.org:443", "dsec policy test web-1 '[2001:db8::1]:53/udp'"],
  options: {},
  formats: listingFormats,
  run: async ({ client }, _options, [ref = "", target = ""]) => {
    const result = await (await (await client()).get(ref)).testNetwork(target);
    const { allowed, name, addresses, unresolved } = result;
    const rows: Finding[] = [
      ...(name === undefined ? [] : [{ target, verdict: name, message: undefined }]),
      ...addresses.map(({ address, ...verdict }) => ({ target: address, verdict, message: undefined })),
      ...(unresolved === undefined ? [] : [{ target, verdict: undefined, message: unresolved }]),
    ];
    const listing = { ...listingOf(findingView, rows), items: [result] };
    return { type: "listing", single: true, listing, exitCode: allowed ? 0 : 1 };
  },
});

export const policyLog = defineVerb({
  description:
    "What was decided about a sandbox's connections and queries, oldest first. What is long past is no longer there.",
  operands: "<ref>",
  examples: ["dsec policy log -f --refused web-1", "dsec policy log --since 5m web-1 -o ndjson"],
  options: {
    follow: flag("-f, --follow", "go on until it is interrupted or the sandbox has ended"),
    since: text("--since <time>", "only what is younger: 5m, or 2026-01-31T12:00:00Z"),
    refused: flag("--refused", "only refusals"),
  },
  formats: streamFormats,
  run: async ({ io, client }, options, [ref = ""]) => {
    const sandbox = await (await client()).get(ref);
    const since = options.since === undefined ? undefined : parseInstant(options.since, io.now());
    const decisions = sandbox.networkLog({ follow: options.follow, ...defined({ since }) });
    return { type: "stream", entries: entriesOf(decisions, options.refused) };
  },
});

async function* entriesOf(
  decisions: AsyncIterable<NetworkDecision>,
  refusedOnly: boolean,
): AsyncGenerator<Listing> {
  for await (const decision of decisions)
    if (!refusedOnly || !decision.allowed) yield listingOf(decisionView, [decision]);
}
