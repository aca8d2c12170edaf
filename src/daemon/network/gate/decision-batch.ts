import { type Counted, type Decided, nothingCounted } from "./gated-sandbox.ts";

/** Decisions that are alike, as the daemon gets to know of them. */
export interface ReportedDecision {
  readonly sandbox: string;
  readonly decision: Decided;
  /** Milliseconds since the epoch, of the last. */
  readonly time: number;
  readonly count: number;
}

export interface GateReport {
  readonly decisions: readonly ReportedDecision[];
  /** What has been counted since the last report, by sandbox. */
  readonly counted: readonly (readonly [string, Counted])[];
}

/** Milliseconds in which what is alike is told once, and then how often. */
const alikeMs = 5000;
/** Kinds kept in mind; beyond them each decision is told. */
const mostKinds = 20_000;
/** Decisions told in a report; what is beyond is counted only. */
const mostDecisions = 1000;

interface Kind extends Omit<ReportedDecision, "count" | "time"> {
  /** When the first of it was told. */
  readonly since: number;
  last: number;
  /** Not told yet. */
  pending: number;
}

/** Gathers decisions until they are reported: bounded, whatever a sandbox does. */
export class DecisionBatch {
  readonly #kinds = new Map<string, Kind>();
  #decisions: ReportedDecision[] = [];
  #counted = new Map<string, { [Key in keyof Counted]: number }>();

  add(sandbox: string, decision: Decided, now: number): void {
    this.#count(sandbox, decision);
    const key = `${sandbox} ${JSON.stringify(decision)}`;
    const kind = this.#kinds.get(key);
    if (kind !== undefined && now - kind.since < alikeMs) {
      kind.pending += 1;
      kind.last = now;
      return;
    }
    if (kind !== undefined) {
      this.#tell(kind);
      // Behind those that are older: the oldest are looked at first.
      this.#kinds.delete(key);
    }
    this.#tell({ sandbox, decision, since: now, last: now, pending: 1 });
    if (this.#kinds.size < mostKinds)
      this.#kinds.set(key, { sandbox, decision, since: now, last: now, pending: 0 });
  }

  /** What there is to report; undefined where there is nothing. */
  take(now: number): GateReport | undefined {
    for (const [key, kind] of this.#kinds) {
      if (now - kind.since < alikeMs) break;
      this.#tell(kind);
      this.#kinds.delete(key);
    }
    if (this.#decisions.length === 0 && this.#counted.size === 0) return undefined;
    const report = { decisions: this.#decisions, counted: [...this.#counted] };
    this.#decisions = [];
    this.#counted = new Map();
    return report;
  }

  #tell({ sandbox, decision, last, pending }: Kind): void {
    if (pending > 0 && this.#decisions.length < mostDecisions)
      this.#decisions.push({ sandbox, decision, time: last, count: pending });
  }

  #count(sandbox: string, { stage, allowed }: Decided): void {
    const counted = this.#counted.get(sandbox) ?? { ...nothingCounted };
    this.#counted.set(sandbox, counted);
    if (stage === "cut") counted.cut += 1;
    else if (stage === "query") counted[allowed ? "queriesAnswered" : "queriesRefused"] += 1;
    else counted[allowed ? "allowed" : "refused"] += 1;
  }
}
