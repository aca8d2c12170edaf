import { DSecError } from "../../../protocol/errors.ts";
import { policyDigest } from "../../../wire/policy-digest.ts";
import type { GivenPolicy, PolicyInForce, PolicyOrigin } from "../../../protocol/policy-in-force.ts";
import type { PolicyApplication, PolicyChange, PolicyPushResult } from "../../../protocol/policy-push.ts";
import { toProblem } from "../../../protocol/problem-codec.ts";
import type { Placement } from "../../../protocol/sandbox.ts";
import { mapBounded } from "../../bounded.ts";
import type { Clock } from "../../clock.ts";
import type { SandboxEntry } from "../../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../../lifecycle/sandboxes.ts";
import { compileFilter } from "../../views/filter.ts";
import type { CompiledPolicy } from "./compile.ts";
import { PlacedPolicies } from "./placed-policies.ts";
import type { PolicyBook } from "./policy-book.ts";
import { noDifference, type PolicyDifference, policyDifference } from "./policy-difference.ts";
import { policyInForce } from "./policy-digest.ts";
import type { PolicyEnforcement } from "./policy-enforcement.ts";

export interface PolicyChangesParts {
  readonly clock: Clock;
  readonly sandboxes: Sandboxes;
  readonly book: PolicyBook;
  readonly enforcement: PolicyEnforcement;
  /** Digests that must not be forgotten though no record refers to them yet. */
  readonly pinned: Set<string>;
}

/** Sandboxes changed at a time: those of a moment are one change of the kernel's rules. */
const parallel = 256;

/** The only place where sandboxes' policies are chosen and changed. */
export class PolicyChanges {
  readonly #parts: PolicyChangesParts;
  readonly #placed: PlacedPolicies;

  constructor(parts: PolicyChangesParts) {
    this.#parts = parts;
    this.#placed = new PlacedPolicies(parts.book);
  }

  /**
   * The policy of a sandbox that is placed; its record must be written before anything else happens.
   * @throws DSecError `unknown_policy`, `unknown_registry`, `disk_full`; `invalid_argument` for a named policy that nobody looked up
   */
  first(placement: Placement): PolicyInForce {
    const { policy, digest, origin } = this.#placed.of(placement);
    this.#parts.book.add(policy, digest);
    return policyInForce(policy, digest, origin, 1, this.#parts.clock.now());
  }

  /**
   * Replaces the policy of sandboxes, each as one step; one that fails does not keep the others from changing.
   * @throws DSecError `unknown_registry`, `invalid_argument` for a malformed filter; nothing has changed then
   */
  async apply({ given, to, expectedRevision, dryRun }: PolicyApplication): Promise<PolicyPushResult> {
    const { book, pinned } = this.#parts;
    const digest = policyDigest(given.policy);
    const compiled = book.compile(given.policy, digest);
    const { found, failed } = this.#find(to);
    const isPinned = pinned.has(digest);
    pinned.add(digest);
    try {
      if (!dryRun) book.add(given.policy, digest);
      const differences = new Map<string, PolicyDifference>();
      const changes = await mapBounded(found, parallel, async (entry) =>
        this.#attempt(entry, { given, compiled, digest, differences, expectedRevision, dryRun }),
      );
      return { items: [...changes, ...failed] };
    } finally {
      if (!isPinned) pinned.delete(digest);
    }
  }

  #find(to: PolicyApplication["to"]): { found: SandboxEntry[]; failed: PolicyChange[] } {
    const { sandboxes } = this.#parts;
    if ("filter" in to) {
      const match = compileFilter(to.filter);
      return { found: [...sandboxes.values()].filter((e) => match.all(sandboxes.viewOf(e))), failed: [] };
    }
    const found = new Set<SandboxEntry>();
    const failed: PolicyChange[] = [];
    for (const ref of new Set(to.refs)) {
      try {
        found.add(sandboxes.find(ref));
      } catch (error) {
        failed.push(failure(ref, error));
      }
    }
    return { found: [...found], failed };
  }

  async #attempt(entry: SandboxEntry, change: Change): Promise<PolicyChange> {
    try {
      await entry.adoption;
      return await this.#parts.enforcement.alone(entry, async () => this.#change(entry, change));
    } catch (error) {
      return failure(entry.id, error, entry);
    }
  }

  async #change(entry: SandboxEntry, change: Change): Promise<PolicyChange> {
    const { given, compiled, digest, differences } = change;
    const { clock, sandboxes, book, enforcement } = this.#parts;
    const before = entry.record.networkPolicy;
    if (entry.isEnded || entry.record.state === "stopping")
      throw new DSecError("sandbox_not_running", `sandbox ${entry.id} is ${entry.record.state}`, {
        details: { state: entry.record.state },
      });
    if (change.expectedRevision !== undefined && change.expectedRevision !== before.revision)
      throw new DSecError(
        "conflict",
        `the policy of sandbox ${entry.id} has revision ${before.revision}, not ${change.expectedRevision}`,
        { details: { revision: before.revision } },
      );
    if (entry.backend !== undefined) enforcement.check(entry.backend, given.policy);
    const sameRules = before.digest === digest;
    const same = sameRules && sameOrigin(before.origin, given.origin);
    const after = same
      ? before
      : policyInForce(given.policy, digest, given.origin, before.revision + 1, clock.now());
    const difference = sameRules
      ? noDifference
      : (differences.get(before.digest) ?? policyDifference(book.source(before.digest), given.policy));
    differences.set(before.digest, difference);
    const result: PolicyChange = {
      ...identityOf(entry),
      outcome: same ? "unchanged" : "changed",
      before,
      after,
      ...difference,
      cut: 0,
      warnings: [...compiled.warnings],
    };
    if (same || change.dryRun) return result;
    const { cut } = sameRules ? result : await enforcement.set(entry, entry.backend, book.get(digest));
    try {
      sandboxes.change(entry, { networkPolicy: after });
    } catch (error) {
      // what the disk does not have must not be in force either
      if (!sameRules) await enforcement.set(entry, entry.backend, book.get(before.digest));
      throw error;
    }
    sandboxes.event(entry, "policy", describe(result, cut));
    enforcement.warn(entry, compiled);
    return { ...result, cut };
  }
}

interface Change {
  readonly given: GivenPolicy;
  readonly compiled: CompiledPolicy;
  readonly digest: string;
  /** Of what sandboxes had before, by its digest: most had the same. */
  readonly differences: Map<string, PolicyDifference>;
  readonly expectedRevision: number | undefined;
  readonly dryRun: boolean;
}

function sameOrigin(a: PolicyOrigin | undefined, b: PolicyOrigin | undefined): boolean {
  return a?.name === b?.name && a?.version === b?.version;
}

function identityOf({ id, record }: SandboxEntry): Pick<PolicyChange, "id" | "name"> {
  const { name } = record.spec;
  return { id, ...(name === undefined ? {} : { name }) };
}

function failure(id: string, error: unknown, entry?: SandboxEntry): PolicyChange {
  return {
    ...(entry === undefined ? { id } : identityOf(entry)),
    outcome: "failed",
    ...(entry === undefined ? {} : { before: entry.record.networkPolicy }),
    ...noDifference,
    cut: 0,
    warnings: [],
    problem: toProblem(error),
  };
}

/** For the sandbox's events. */
function describe({ after, addedCount, removedCount }: PolicyChange, cut: number): string {
  const origin = after?.origin;
  const version = origin?.version === undefined ? "" : `@${origin.version}`;
  const what = origin === undefined ? "rules of its own" : `policy ${origin.name}${version}`;
  const closed = cut === 0 ? "" : `; ${cut} connections cut`;
  return `${what}, revision ${after?.revision}: ${addedCount} rules more, ${removedCount} fewer${closed}`;
}
