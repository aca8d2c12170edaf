import type { NetworkCounters, NetworkDecision } from "../../../protocol/network-decision.ts";
import type { CompiledPolicy } from "../policy/compile.ts";
import type { Pins } from "./pins.ts";
import type { TokenBucket } from "./token-bucket.ts";

/** A decision as it comes about; what is the same for all of a sandbox is added later. */
export type Decided = Omit<NetworkDecision, "sequence" | "time" | "sandbox" | "count">;

/** Counted in the gate's thread. */
export type Counted = Pick<
  NetworkCounters,
  "allowed" | "refused" | "queriesAnswered" | "queriesRefused" | "cut"
>;

export const nothingCounted: Counted = {
  allowed: 0,
  refused: 0,
  queriesAnswered: 0,
  queriesRefused: 0,
  cut: 0,
};

export function sumOf(one: Counted, other: Counted): Counted {
  return {
    allowed: one.allowed + other.allowed,
    refused: one.refused + other.refused,
    queriesAnswered: one.queriesAnswered + other.queriesAnswered,
    queriesRefused: one.queriesRefused + other.queriesRefused,
    cut: one.cut + other.cut,
  };
}

/** A sandbox with a link, as the gate knows it. */
export interface GatedSandbox {
  readonly id: string;
  /** Its address. */
  readonly source: string;
  readonly link: string;
  /** The one in force. */
  readonly policy: CompiledPolicy;
  readonly pins: Pins;
  readonly isGone: boolean;
  /** Connections and questions that the node begins for it. */
  readonly begun: TokenBucket;
  decided(decision: Decided): void;
}

export interface GatedSandboxes {
  bySource(source: string): GatedSandbox | undefined;
  byLink(link: string): GatedSandbox | undefined;
}
