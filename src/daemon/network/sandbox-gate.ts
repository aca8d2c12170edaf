import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { BackendCapabilities } from "../../backends/backend.ts";
import { isErrno } from "../../backends/linux/libc.ts";
import type {
  NetworkCounters,
  NetworkDecision,
  NetworkProbe,
  NetworkProbeResult,
} from "../../protocol/network-decision.ts";
import { type LogQuery, SandboxLog } from "../sandbox-log.ts";
import type { GateReport, ReportedDecision } from "./gate/decision-batch.ts";
import { type Counted, nothingCounted, sumOf } from "./gate/gated-sandbox.ts";
import type { GateSettings } from "./gate/gate-messages.ts";
import { GateThread } from "./gate/gate-thread.ts";
import type { CompiledPolicy } from "./policy/compile.ts";
import { NameTable } from "./policy/name-table.ts";
import { PrefixTable } from "./policy/prefix-table.ts";
import type { NetworkTotals, PolicyEffect, SandboxPolicies } from "./sandbox-policies.ts";

/** A sandbox's place in the network. */
export interface GateLink {
  readonly address: string;
  /** Name of the host's end. */
  readonly link: string;
}

export interface SandboxGateParts extends GateSettings {
  /** In [0, 1). */
  readonly random: () => number;
  /** The gate has ended by an error, and is being opened again. */
  readonly interrupted: (reason: Error) => void;
}

const restartMs = { least: 200, most: 30_000 } as const;
const linkDirectory = "/sys/class/net";
/** Decisions kept: of a sandbox, so many of each stage that were allowed, and that were refused. */
const mostDecisions = { perLane: 512, inAll: 200_000 } as const;

/** Of sandboxes whose policy is not known: nothing is allowed. */
const denyAll: CompiledPolicy = {
  source: { default: "deny", rules: [] },
  default: "deny",
  domains: [],
  cidrs: [],
  names: new NameTable([]),
  prefixes: new PrefixTable([]),
  protectedRanges: [],
  warnings: [],
};

/**
 * The policies of a node's sandboxes, in force. What is set before a sandbox has a link is in force when it gets one. Should the
 * thread behind it fail, what goes through it ends, what the kernel allows by address stays, and it is opened again.
 */
export class SandboxGate implements SandboxPolicies {
  readonly #parts: SandboxGateParts;
  readonly #policies = new Map<string, CompiledPolicy>();
  readonly #links = new Map<string, GateLink>();
  readonly #log = new SandboxLog<ReportedDecision>(mostDecisions);
  readonly #counted = new Map<string, Counted>();
  /** Of all sandboxes since this daemon's start. */
  #total = nothingCounted;
  #interruptions = 0;
  #thread: GateThread;
  #failures = 0;
  #restart: NodeJS.Timeout | undefined;
  #isReconciled = false;
  #closed = false;

  private constructor(parts: SandboxGateParts) {
    this.#parts = parts;
    this.#thread = this.#start();
  }

  /** @throws DSecError `backend_unavailable` */
  static async open(parts: SandboxGateParts): Promise<SandboxGate> {
    const gate = new SandboxGate(parts);
    try {
      await gate.#thread.ready;
      return gate;
    } catch (error) {
      await gate.close();
      throw error;
    }
  }

  enforces({ network }: BackendCapabilities): boolean {
    return network === "prepared" || network === "joined";
  }

  async set(sandbox: string, policy: CompiledPolicy): Promise<PolicyEffect> {
    const before = this.#policies.get(sandbox);
    this.#policies.set(sandbox, policy);
    if (!this.#links.has(sandbox)) return { cut: 0 };
    const thread = this.#thread;
    try {
      const cut = await thread.set(sandbox, policy);
      thread.release(before ?? denyAll);
      return { cut };
    } catch (error) {
      thread.release(policy);
      if (before === undefined) this.#policies.delete(sandbox);
      else this.#policies.set(sandbox, before);
      throw error;
    }
  }

  /** Puts the sandbox's policy in force for its link, before anything runs behind it, or again after a restart. @throws DSecError */
  async attach(sandbox: string, link: GateLink): Promise<void> {
    this.#links.set(sandbox, link);
    try {
      await this.#attach(sandbox, link);
    } catch (error) {
      this.#links.delete(sandbox);
      throw error;
    }
  }

  /** Takes everything away from the sandbox's link, before another gets its address. Idempotent. @throws DSecError */
  async detach(sandbox: string): Promise<void> {
    if (!this.#links.delete(sandbox)) return;
    const thread = this.#thread;
    thread.release(this.#policies.get(sandbox) ?? denyAll);
    try {
      await thread.detach(sandbox);
    } catch (error) {
      // The one that is opened next takes away what no sandbox has.
      if (!thread.hasEnded) throw error;
    }
  }

  async remove(sandbox: string): Promise<void> {
    await this.detach(sandbox);
    this.#policies.delete(sandbox);
    this.#counted.delete(sandbox);
    this.#log.remove(sandbox);
  }

  /** Takes everything away from addresses that no sandbox has, once all were attached that an earlier daemon has left. */
  async reconcile(): Promise<void> {
    this.#isReconciled = true;
    await this.#thread.reconcile();
  }

  async test(sandbox: string, probe: NetworkProbe, signal: AbortSignal): Promise<NetworkProbeResult> {
    signal.throwIfAborted();
    return this.#thread.test(this.#policies.get(sandbox) ?? denyAll, probe);
  }

  async *decisions(
    sandbox: string,
    query: LogQuery,
    signal: AbortSignal,
  ): AsyncGenerator<NetworkDecision, void, undefined> {
    for await (const { sequence, time, value } of this.#log.read(sandbox, query, signal))
      yield { ...value.decision, sandbox, time, count: value.count, sequence };
  }

  counters(sandbox: string): NetworkCounters {
    const link = this.#links.get(sandbox)?.link;
    return {
      ...(this.#counted.get(sandbox) ?? nothingCounted),
      // What the host's end receives is what the sandbox has sent.
      bytesSent: link === undefined ? 0 : statistic(link, "rx_bytes"),
      bytesReceived: link === undefined ? 0 : statistic(link, "tx_bytes"),
    };
  }

  totals(): NetworkTotals {
    return { ...this.#total, interruptions: this.#interruptions };
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#restart);
    await this.#thread.close();
  }

  async #attach(sandbox: string, { address, link }: GateLink): Promise<void> {
    const policy = this.#policies.get(sandbox) ?? denyAll;
    const thread = this.#thread;
    try {
      await thread.attach({ id: sandbox, source: address, link }, policy);
    } catch (error) {
      thread.release(policy);
      throw error;
    }
  }

  #start(): GateThread {
    return new GateThread(
      { firewall: this.#parts.firewall, nameServers: this.#parts.nameServers },
      (report) => this.#reported(report),
      (reason) => this.#ended(reason),
    );
  }

  #reported({ decisions, counted }: GateReport): void {
    for (const decision of decisions)
      if (this.#links.has(decision.sandbox))
        this.#log.add(decision.sandbox, decision.time, decision, { lane: laneOf(decision) });
    for (const [sandbox, more] of counted) {
      this.#total = sumOf(this.#total, more);
      if (this.#links.has(sandbox))
        this.#counted.set(sandbox, sumOf(this.#counted.get(sandbox) ?? nothingCounted, more));
    }
  }

  #ended(reason: Error): void {
    if (this.#closed) return;
    this.#interruptions += 1;
    this.#parts.interrupted(reason);
    const waits = Math.min(restartMs.most, restartMs.least * 2 ** this.#failures);
    this.#failures += 1;
    this.#restart = setTimeout(() => void this.#again(), waits * (0.5 + this.#parts.random() / 2));
  }

  async #again(): Promise<void> {
    this.#thread = this.#start();
    try {
      await this.#thread.ready;
      const attached = await Promise.allSettled(
        [...this.#links].map(([sandbox, link]) => this.#attach(sandbox, link)),
      );
      if (this.#isReconciled) await this.#thread.reconcile();
      this.#failures = 0;
      // The kernel still holds their packets to the policy before; their names stay closed.
      for (const result of attached)
        if (result.status === "rejected") this.#parts.interrupted(asError(result.reason));
    } catch (error) {
      // Its end, which follows, begins the next attempt.
      this.#parts.interrupted(asError(error));
    }
  }
}

/** What a sandbox may ask for without end must not push out what it was refused. */
function laneOf({ decision }: ReportedDecision): string {
  return `${decision.stage} ${decision.allowed ? "allowed" : "refused"}`;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

function statistic(link: string, name: "rx_bytes" | "tx_bytes"): number {
  try {
    return Number(readFileSync(join(linkDirectory, link, "statistics", name), "latin1"));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENODEV")) return 0;
    throw error;
  }
}
