/** What the daemon and the gate's thread tell each other. */
import type { NetworkProbe, NetworkProbeResult } from "../../../protocol/network-decision.ts";
import type { ThreadEnd } from "../../thread.ts";
import type { Firewall } from "../firewall.ts";
import type { CompiledPolicy } from "../policy/compile.ts";
import type { GateReport } from "./decision-batch.ts";
import type { Attachment } from "./gate.ts";
import type { NameServer } from "./name-server.ts";

/** A compiled policy without the tables that follow from it. */
export type PolicyBody = Omit<CompiledPolicy, "names" | "prefixes">;

/** Given to the thread at its start. */
export interface GateSettings {
  readonly firewall: Firewall;
  readonly nameServers?: readonly NameServer[] | undefined;
}

export type GateRequest = { readonly number: number } & (
  | { readonly type: "attach"; readonly attachment: Attachment; readonly policy: number }
  | { readonly type: "set"; readonly id: string; readonly policy: number }
  | { readonly type: "detach"; readonly id: string }
  | { readonly type: "reconcile" }
  | { readonly type: "test"; readonly policy: number; readonly probe: NetworkProbe }
);

export type GateMessage =
  | GateRequest
  /** Many sandboxes share a policy: it is told once, and then named by its number. */
  | { readonly type: "policy"; readonly policy: number; readonly body: PolicyBody }
  | { readonly type: "forget"; readonly policy: number }
  | ThreadEnd;

export interface GateResult {
  readonly cut?: number;
  readonly test?: NetworkProbeResult;
}

export type GateAnswer =
  | { readonly type: "ready"; readonly failure: string }
  /** With what has to be closed, should the thread end without having been asked to. */
  | { readonly type: "ready"; readonly descriptors: readonly number[] }
  | {
      readonly type: "answer";
      readonly number: number;
      readonly result: GateResult;
      readonly failure?: string;
    }
  | { readonly type: "report"; readonly report: GateReport };
