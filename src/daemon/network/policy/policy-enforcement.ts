import type { Logger } from "pino";
import type { Backend } from "../../../backends/backend.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { NetworkPolicy } from "../../../protocol/network-policy.ts";
import { mapBounded } from "../../bounded.ts";
import type { SandboxEntry } from "../../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../../lifecycle/sandboxes.ts";
import type { PolicyEffect, SandboxPolicies } from "../sandbox-policies.ts";
import type { CompiledPolicy } from "./compile.ts";
import type { PolicyBook } from "./policy-book.ts";
import { emptyPolicy, ruleTexts } from "./policy-digest.ts";

export interface PolicyEnforcementParts {
  readonly log: Logger;
  readonly sandboxes: Pick<Sandboxes, "event" | "live">;
  readonly book: PolicyBook;
  /** Undefined where the node has none. */
  readonly datapath: SandboxPolicies | undefined;
}

/** Sandboxes changed at a time. */
const parallel = 256;
/** Rules that a refusal names. */
const shownRules = 10;

/** Puts the policies of records in force: one change of a sandbox at a time, whoever asks for it. */
export class PolicyEnforcement {
  readonly #parts: PolicyEnforcementParts;
  readonly #busy = new Map<string, Promise<unknown>>();

  constructor(parts: PolicyEnforcementParts) {
    this.#parts = parts;
  }

  /** The datapath that a sandbox's packets go through. */
  of(backend: Backend | undefined): SandboxPolicies | undefined {
    const { datapath } = this.#parts;
    return backend !== undefined && datapath?.enforces(backend.capabilities) === true ? datapath : undefined;
  }

  /**
   * Whether sandboxes of a backend can have a policy. A simulated one can have any: nothing runs in it.
   * @throws DSecError `network_policy_unsupported`
   */
  check(backend: Backend, policy: NetworkPolicy): void {
    if (!backend.capabilities.realProcesses || this.of(backend) !== undefined) return;
    const allowed = ruleTexts(policy).filter((text) => text.startsWith("allow "));
    if (policy.default === "allow") allowed.push("allow everything else");
    if (allowed.length === 0) return;
    const name = backend.engine ?? backend.kind;
    throw new DSecError(
      "network_policy_unsupported",
      `sandboxes of ${name} have no way out of their network on this node, so it cannot ${allowed.slice(0, shownRules).join(", ")}`,
      { details: { allowed: allowed.slice(0, shownRules) } },
    );
  }

  /** Does `work` when no other change of this sandbox's policy is under way. */
  async alone<T>(entry: SandboxEntry, work: () => Promise<T>): Promise<T> {
    const earlier = this.#busy.get(entry.id);
    const run = (async () => {
      await earlier?.catch(() => undefined);
      return work();
    })();
    this.#busy.set(entry.id, run);
    try {
      return await run;
    } finally {
      if (this.#busy.get(entry.id) === run) this.#busy.delete(entry.id);
    }
  }

  /** Before the sandbox has a link. @throws DSecError `backend_unavailable`, `unknown_registry` */
  async begin(entry: SandboxEntry, backend: Backend): Promise<void> {
    await this.alone(entry, async () => {
      const policy = this.#parts.book.get(entry.record.networkPolicy.digest);
      await this.set(entry, backend, policy);
      this.warn(entry, policy);
    });
  }

  /** After a restart, before the sandbox is taken up. @throws DSecError `backend_unavailable` */
  async resume(entry: SandboxEntry, backend: Backend): Promise<void> {
    await this.alone(entry, async () => this.set(entry, backend, this.#known(entry)));
  }

  /** @throws DSecError `backend_unavailable`: the policy before is still in force */
  async set(
    entry: SandboxEntry,
    backend: Backend | undefined,
    policy: CompiledPolicy,
  ): Promise<PolicyEffect> {
    return (await this.of(backend)?.set(entry.id, policy)) ?? { cut: 0 };
  }

  /** Tells what the author of a policy may not expect. */
  warn(entry: SandboxEntry, { warnings }: CompiledPolicy): void {
    for (const warning of warnings.slice(0, shownRules))
      this.#parts.sandboxes.event(entry, "policy", `warning: ${warning}`);
  }

  /** When nothing of the sandbox runs any more. */
  async end(entry: SandboxEntry): Promise<void> {
    await this.alone(entry, async () => this.of(entry.backend)?.remove(entry.id));
  }

  /** Puts every policy that names registries in force anew: their names stand for something else now. Works in the background. */
  registriesChanged(): void {
    const { book, sandboxes, log } = this.#parts;
    book.forgetCompiled();
    const entries = sandboxes.live().filter((entry) => this.of(entry.backend) !== undefined);
    void mapBounded(entries, parallel, async (entry) =>
      this.alone(entry, async () => {
        if (entry.isEnded || !namesRegistries(book.source(entry.record.networkPolicy.digest))) return;
        await this.set(entry, entry.backend, this.#known(entry));
      }).catch((error: unknown) => {
        log.error({ err: error, sandbox: entry.id }, "a changed registry could not be put in force");
      }),
    );
  }

  /** A registry that is gone must neither end the sandbox nor open what a rule about it closed: then everything is closed. */
  #known(entry: SandboxEntry): CompiledPolicy {
    const { book, sandboxes, log } = this.#parts;
    try {
      return book.get(entry.record.networkPolicy.digest);
    } catch (error) {
      if (!(error instanceof DSecError) || error.code !== "unknown_registry") throw error;
      log.warn({ err: error, sandbox: entry.id }, "a sandbox's policy cannot be put in force any more");
      const message = `everything is refused until it is given another policy: ${error.message}`;
      sandboxes.event(entry, "policy", message);
      return book.compile(emptyPolicy);
    }
  }
}

function namesRegistries({ rules }: NetworkPolicy): boolean {
  return rules.some(({ target }) => target.kind === "registry");
}
