import type { NetworkPolicy } from "../../../protocol/network-policy.ts";
import type { Journal } from "../../journal/journal.ts";
import { type CompileContext, type CompiledPolicy, compilePolicy } from "./compile.ts";
import { policyDigest } from "../../../wire/policy-digest.ts";
import { emptyPolicy } from "./policy-digest.ts";

export interface PolicyBookParts {
  readonly journal: Pick<Journal, "addPolicy" | "policy" | "policyDigests" | "removePolicy">;
  /** What the policies of this node are compiled with, as of now. */
  readonly context: () => CompileContext;
  /** Digests that records of sandboxes refer to. */
  readonly used: () => ReadonlySet<string>;
}

/** Policies taken in until those that nothing refers to any more are looked for. */
const pruneEvery = 64;

/** The policies that sandboxes of this node have, each once however many have it: on disk and, compiled, in memory. */
export class PolicyBook {
  readonly #parts: PolicyBookParts;
  readonly #compiled = new Map<string, CompiledPolicy>();
  /** What the journal surely has. */
  readonly #written = new Set<string>();
  #added = 0;

  constructor(parts: PolicyBookParts) {
    this.#parts = parts;
  }

  /**
   * Takes a policy in by its digest; it stays as long as a record refers to its digest, which must be written before anything else happens.
   * @throws DSecError `unknown_registry`, `disk_full`
   */
  add(policy: NetworkPolicy, digest: string): CompiledPolicy {
    const known = this.#compiled.get(digest);
    if (known !== undefined && this.#written.has(digest)) return known;
    if ((this.#added += 1) % pruneEvery === 0) this.prune();
    const compiled = known ?? compilePolicy(policy, this.#parts.context());
    this.#parts.journal.addPolicy(digest, policy);
    this.#written.add(digest);
    this.#compiled.set(digest, compiled);
    return compiled;
  }

  /** What would be made of a policy. @throws DSecError `unknown_registry` */
  compile(policy: NetworkPolicy, digest = policyDigest(policy)): CompiledPolicy {
    return this.#compiled.get(digest) ?? compilePolicy(policy, this.#parts.context());
  }

  /** As it was given. @throws DSecError `journal_corrupt` */
  find(digest: string): NetworkPolicy | undefined {
    return this.#compiled.get(digest)?.source ?? this.#parts.journal.policy(digest);
  }

  /** As it was given; that which allows nothing where the journal has none. @throws DSecError `journal_corrupt` */
  source(digest: string): NetworkPolicy {
    return this.find(digest) ?? emptyPolicy;
  }

  /** @throws DSecError `unknown_registry` when the node has been told of fewer registries since */
  get(digest: string): CompiledPolicy {
    const known = this.#compiled.get(digest);
    if (known !== undefined) return known;
    const compiled = compilePolicy(this.source(digest), this.#parts.context());
    this.#compiled.set(digest, compiled);
    return compiled;
  }

  /** What was compiled holds no more: another registry table. */
  forgetCompiled(): void {
    this.#compiled.clear();
  }

  /** Forgets what no record refers to. */
  prune(): void {
    const used = this.#parts.used();
    for (const digest of this.#written) if (!used.has(digest)) this.#written.delete(digest);
    for (const digest of this.#compiled.keys()) if (!used.has(digest)) this.#compiled.delete(digest);
    for (const digest of this.#parts.journal.policyDigests())
      if (!used.has(digest)) this.#parts.journal.removePolicy(digest);
  }
}
