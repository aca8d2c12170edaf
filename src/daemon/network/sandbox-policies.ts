import type { BackendCapabilities } from "../../backends/backend.ts";
import type {
  NetworkCounters,
  NetworkDecision,
  NetworkProbe,
  NetworkProbeResult,
} from "../../protocol/network-decision.ts";
import type { LogQuery } from "../sandbox-log.ts";
import type { CompiledPolicy } from "./policy/compile.ts";

/** What putting a policy in force did to what was open. */
export interface PolicyEffect {
  /** Connections ended because they no longer pass. */
  readonly cut: number;
}

/** Of all sandboxes since the daemon's start, ended ones included. */
export interface NetworkTotals extends Omit<NetworkCounters, "bytesSent" | "bytesReceived"> {
  /** How often what names are reached through has failed, and was begun anew. */
  readonly interruptions: number;
}

/**
 * The node's datapath as the rest of the daemon sees it: who may reach what, by sandbox. It holds no truth: the journal does, and the
 * daemon sets every sandbox's policy anew after a restart.
 */
export interface SandboxPolicies {
  /**
   * Whether sandboxes of such a backend get what their policy allows. Where not, the daemon accepts only policies that allow
   * nothing (`network_policy_unsupported`).
   */
  enforces(capabilities: BackendCapabilities): boolean;
  /**
   * Replaces a sandbox's policy, as one step: no moment is without rules or with half of them. Called before the sandbox has
   * a link, and before it is adopted, too: the policy is then in force when the link is. After the call returns, connections that
   * the policy does not allow are cut.
   * @throws DSecError `backend_unavailable`: the policy before is still in force
   */
  set(sandbox: string, policy: CompiledPolicy): Promise<PolicyEffect>;
  /** Forgets a sandbox that has ended: policy, decisions, counters. Idempotent. */
  remove(sandbox: string): Promise<void>;
  /** What would become of a connection, by the policy in force; resolves names as the sandbox's resolver would, and sends nothing else. */
  test(sandbox: string, probe: NetworkProbe, signal: AbortSignal): Promise<NetworkProbeResult>;
  /** Oldest first; bounded, so the oldest may be gone. */
  decisions(sandbox: string, query: LogQuery, signal: AbortSignal): AsyncIterable<NetworkDecision>;
  counters(sandbox: string): NetworkCounters;
  totals(): NetworkTotals;
}
