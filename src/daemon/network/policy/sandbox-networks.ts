import { isIP } from "node:net";
import { DSecError } from "../../../protocol/errors.ts";
import type {
  NetworkCounters,
  NetworkDecision,
  NetworkProbe,
  NetworkProbeResult,
} from "../../../protocol/network-decision.ts";
import type { NetworkPolicy } from "../../../protocol/network-policy.ts";
import type { SandboxPolicy } from "../../../protocol/policy-in-force.ts";
import type { SandboxEntry } from "../../lifecycle/sandbox-entry.ts";
import type { LogQuery } from "../../sandbox-log.ts";
import { judge, judgeConnectionByName } from "./judge.ts";
import type { PolicyBook } from "./policy-book.ts";
import type { PolicyEnforcement } from "./policy-enforcement.ts";

export interface SandboxNetworksParts {
  readonly book: PolicyBook;
  readonly enforcement: PolicyEnforcement;
}

/** What there is to see of sandboxes' networks. */
export class SandboxNetworks {
  readonly #parts: SandboxNetworksParts;

  constructor(parts: SandboxNetworksParts) {
    this.#parts = parts;
  }

  policy({ id, record }: SandboxEntry): SandboxPolicy {
    const { book } = this.#parts;
    const policy = book.source(record.networkPolicy.digest);
    return { ...record.networkPolicy, sandbox: id, policy, warnings: warningsOf(book, policy) };
  }

  /** By the datapath; where it has none, by the policy alone. @throws DSecError `sandbox_not_running` */
  async test(entry: SandboxEntry, probe: NetworkProbe, signal: AbortSignal): Promise<NetworkProbeResult> {
    entry.requireRunning();
    const { book, enforcement } = this.#parts;
    const datapath = enforcement.of(entry.backend);
    if (datapath !== undefined) return datapath.test(entry.id, probe, signal);
    const policy = book.get(entry.record.networkPolicy.digest);
    const { host, port, protocol } = probe;
    if (isIP(host) === 0) {
      const name = judgeConnectionByName(policy, { name: host, port, protocol });
      return { allowed: name.allowed, name, addresses: [], unresolved: "this sandbox has no resolver" };
    }
    const verdict = judge(policy, { address: host, port, protocol });
    return { allowed: verdict.allowed, addresses: [{ address: host, ...verdict }] };
  }

  /** Oldest first. Of a sandbox without a datapath there are none. */
  async *decisions(
    entry: SandboxEntry,
    query: LogQuery,
    signal: AbortSignal,
  ): AsyncGenerator<NetworkDecision, void, undefined> {
    const datapath = this.#parts.enforcement.of(entry.backend);
    if (datapath !== undefined) yield* datapath.decisions(entry.id, query, signal);
  }

  counters(entry: SandboxEntry): NetworkCounters | undefined {
    return entry.isEnded ? undefined : this.#parts.enforcement.of(entry.backend)?.counters(entry.id);
  }
}

/** A policy that cannot be put in force any more is shown as it is, with the reason. */
function warningsOf(book: PolicyBook, policy: NetworkPolicy): string[] {
  try {
    return [...book.compile(policy).warnings];
  } catch (error) {
    if (!(error instanceof DSecError) || error.code !== "unknown_registry") throw error;
    return [`everything is refused: ${error.message}`];
  }
}
