import { createHash } from "node:crypto";
import { DSecError, type ErrorCode } from "../../protocol/errors.ts";
import { nodeOfSandboxId, sandboxIdFrom } from "../../protocol/names.ts";
import type { Placement, Sandbox, SandboxList, SandboxSpec } from "../../protocol/sandbox.ts";
import { plan, type Refusal } from "../core/placement.ts";
import { placedRecently } from "../core/snapshot.ts";
import { askAll } from "./fan-out.ts";
import type { FleetNode } from "./fleet-node.ts";
import type { Orphans } from "./orphans.ts";
import { givenPolicy } from "./policy-choice.ts";
import type { Registry } from "./registry.ts";
import type { Store } from "./store.ts";
import type { Watcher } from "./watcher.ts";

export interface CreateParts {
  readonly registry: Registry;
  readonly watcher: Watcher;
  readonly store: Store;
  readonly orphans: Orphans;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  readonly randomBytes: (size: number) => Uint8Array;
  readonly refused: (refusal: Refusal) => void;
}

export interface CreateRequest {
  readonly owner: string;
  readonly spec: SandboxSpec;
  readonly key: string | undefined;
  readonly requestId: string;
  readonly signal: AbortSignal;
}

/** Milliseconds a node has to start a sandbox; its own deadlines are shorter. */
const startMs = 600_000;
/** Milliseconds other nodes have to say whether a name is taken there. */
const nameLookupMs = 5000;
const retryAfterMs = 1000;

/** Codes by which a node says that the sandbox had better be somewhere else; nothing was made there. */
const elsewhere: ReadonlySet<ErrorCode> = new Set([
  "admission_memory",
  "admission_count",
  "admission_pressure",
  "admission_disk",
  "draining",
  "backend_unavailable",
  "image_not_found",
  "network_policy_unsupported",
  "unknown_registry",
  "node_unreachable",
  "rate_limited",
]);

/** Of those, what waiting does not change. */
const unrelatedToRoom: ReadonlySet<ErrorCode> = new Set([
  "backend_unavailable",
  "image_not_found",
  "network_policy_unsupported",
  "unknown_registry",
]);

/** Places new sandboxes: one id per sandbox, whatever is retried; one sandbox per idempotency key and per name. */
export class Creates {
  readonly #parts: CreateParts;
  /** Creates under way by owner and key: the second waits for the first. */
  readonly #underWay = new Map<string, Promise<unknown>>();
  readonly #reservedNames = new Set<string>();

  constructor(parts: CreateParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the sandbox runs.
   * @throws DSecError `no_capacity` with details.refusals, `no_node`, `name_taken`, `conflict` for a key used with another spec,
   *   what the node refused, or `connection_lost` (ambiguous; the same key finds the sandbox)
   */
  async create(request: CreateRequest): Promise<Sandbox> {
    const { owner, key } = request;
    if (key === undefined) return this.#fresh(request, undefined);
    const slot = `${owner}\0${key}`;
    const earlier = this.#underWay.get(slot);
    const run = (async () => {
      await earlier?.catch(() => undefined);
      return this.#keyed(request, key);
    })();
    this.#underWay.set(slot, run);
    try {
      return await run;
    } finally {
      if (this.#underWay.get(slot) === run) this.#underWay.delete(slot);
    }
  }

  async #keyed(request: CreateRequest, key: string): Promise<Sandbox> {
    const { store, registry } = this.#parts;
    const digest = createHash("sha256").update(JSON.stringify(request.spec)).digest("base64url");
    const known = store.findCreate(request.owner, key);
    if (known === undefined) return this.#fresh(request, digest);
    if (known.digest !== digest)
      throw new DSecError("conflict", "this idempotency key was used for another sandbox before", {
        details: { id: known.id },
      });
    const node = registry.get(nodeOfSandboxId(known.id) ?? "");
    if (node === undefined)
      throw new DSecError("node_unreachable", `the node of sandbox ${known.id} is no longer known`, {
        ambiguous: true,
        details: { id: known.id },
      });
    // a node that no longer has its record would make it once more
    if (known.made) return this.#find(node, known.id, request);
    // the same id is the same sandbox: whatever became of the earlier attempt, it is not placed twice
    return this.#place(node, known.id, request).catch((error: unknown) => {
      this.#forgetUnlessUnknown(request, known.id, error);
      throw error;
    });
  }

  async #find(node: FleetNode, id: string, { signal, requestId }: CreateRequest): Promise<Sandbox> {
    this.#parts.orphans.claimed(id);
    try {
      return await node.client.json<Sandbox>("getSandbox", {
        params: { ref: id },
        headers: { "x-request-id": requestId },
        signal,
      });
    } catch (error) {
      if (!(error instanceof DSecError) || error.code !== "not_found") throw error;
      throw new DSecError("not_found", `sandbox ${id}, which this idempotency key made, is gone`, {
        cause: error,
        details: { id },
      });
    }
  }

  async #fresh(request: CreateRequest, digest: string | undefined): Promise<Sandbox> {
    const { name } = request.spec;
    if (name === undefined) return this.#somewhere(request, digest);
    if (this.#reservedNames.has(name)) throw nameTaken(name, undefined);
    this.#reservedNames.add(name);
    try {
      await this.#checkName(name, request.signal);
      return await this.#somewhere(request, digest);
    } finally {
      this.#reservedNames.delete(name);
    }
  }

  /** A node that cannot be asked does not keep names from being given: a name that then exists twice is ambiguous, and said so. */
  async #checkName(name: string, signal: AbortSignal): Promise<void> {
    const nodes = this.#parts.registry.all();
    // the only node knows its own names
    if (nodes.length < 2) return;
    const options = { query: { name, all: true, limit: 1 }, timeoutMs: nameLookupMs, signal };
    const { answers } = await askAll(
      nodes.filter((node) => node.healthy),
      async (node) => node.client.json<SandboxList>("listSandboxes", options),
    );
    const holder = answers.flatMap(({ value }) => value.items).at(0);
    if (holder !== undefined) throw nameTaken(name, holder.id);
  }

  async #somewhere(request: CreateRequest, digest: string | undefined): Promise<Sandbox> {
    const { registry, watcher, store, now, randomBytes } = this.#parts;
    if (registry.size === 0) throw new DSecError("no_node", "the fleet has no nodes", { retryAfterMs });
    const refusals = new Map<string, Refusal>();
    const errors = new Map<string, DSecError>();
    for (let probed = false; ;) {
      const chosen = this.#choose(request.spec, refusals, errors);
      if (chosen === undefined) {
        // a node that has just come up, or come back, is asked before anybody is turned away
        if (probed || ![...refusals.values()].some(isUnreachable)) throw this.#refuse(refusals, errors);
        probed = true;
        await watcher.probeUnhealthy();
        continue;
      }
      const id = sandboxIdFrom(chosen.name, randomBytes(10));
      if (request.key !== undefined && digest !== undefined)
        store.putCreate(request.owner, request.key, { id, digest, made: false }, now());
      try {
        return await this.#place(chosen, id, request);
      } catch (error) {
        this.#forgetUnlessUnknown(request, id, error);
        if (!(error instanceof DSecError) || error.ambiguous || !elsewhere.has(error.code)) throw error;
        const refusal = { node: chosen.name, code: error.code, reason: error.message };
        this.#parts.refused(refusal);
        refusals.set(chosen.name, refusal);
        errors.set(chosen.name, error);
      }
    }
  }

  /** The planned node; its refusals replace those of an earlier round, except where a node itself refused. */
  #choose(
    spec: SandboxSpec,
    refusals: Map<string, Refusal>,
    errors: ReadonlyMap<string, DSecError>,
  ): FleetNode | undefined {
    const { registry, random } = this.#parts;
    const open = registry.all().filter(({ name }) => !errors.has(name));
    const snapshot = open.map((node) => node.snapshot());
    const [planned] = plan(snapshot, [spec], { seed: Math.floor(random() * 2 ** 32) });
    for (const { name } of open) refusals.delete(name);
    for (const refusal of planned?.refusals ?? []) refusals.set(refusal.node, refusal);
    return planned?.node === undefined ? undefined : registry.get(planned.node);
  }

  async #place(node: FleetNode, id: string, request: CreateRequest): Promise<Sandbox> {
    const { owner, spec, signal, requestId } = request;
    const { orphans, store, now } = this.#parts;
    const { networkPolicy, ...body } = { id, owner, ...this.#withPolicy(spec) };
    orphans.claimed(id);
    const settled = node.placing(placedRecently(spec));
    try {
      const sandbox = await node.policies.send(networkPolicy, async (policy) =>
        node.client.json<Sandbox>("placeSandbox", {
          params: { id },
          body: { ...body, ...policy } satisfies Placement,
          headers: { "x-request-id": requestId },
          signal,
          timeoutMs: startMs,
        }),
      );
      if (signal.aborted) throw clientGone(signal);
      if (request.key !== undefined) store.createMade(owner, request.key);
      return sandbox;
    } catch (error) {
      if (signal.aborted) orphans.left(node, id, this.#forgetter(request, id));
      throw error;
    } finally {
      settled(now());
    }
  }

  /** What its policy's name stands for is looked up here; rules go once, beside the spec. */
  #withPolicy(spec: SandboxSpec): Pick<Placement, "spec" | "networkPolicy"> {
    const { networkPolicy, ...rest } = spec;
    if (networkPolicy === undefined) return { spec };
    const given = givenPolicy(this.#parts.store.policies, networkPolicy);
    return { spec: typeof networkPolicy === "string" ? spec : rest, networkPolicy: given };
  }

  #forgetter({ owner, key }: CreateRequest, id: string): (() => void) | undefined {
    return key === undefined ? undefined : () => this.#parts.store.deleteCreate(owner, key, id);
  }

  /** A key whose create certainly came to nothing may be tried anew; one whose outcome is unknown must find the same id. */
  #forgetUnlessUnknown({ owner, key }: CreateRequest, id: string, error: unknown): void {
    if (key === undefined || (error instanceof DSecError && error.ambiguous)) return;
    this.#parts.store.deleteCreate(owner, key, id);
  }

  #refuse(refusals: ReadonlyMap<string, Refusal>, errors: ReadonlyMap<string, DSecError>): DSecError {
    const all = [...refusals.values()].sort((a, b) => (a.node < b.node ? -1 : 1));
    const [first] = errors.values();
    // every node said the same, and it has nothing to do with room
    const same = first !== undefined && all.every(({ code }) => code === first.code);
    if (same && unrelatedToRoom.has(first.code)) return first;
    const shown = all.slice(0, 3).map(({ node, reason }) => `${node}: ${reason}`);
    const message = `no node takes the sandbox: ${shown.join("; ")}${all.length > 3 ? `; and ${all.length - 3} more` : ""}`;
    const details = { refusals: all };
    // room is not what is missing, and waiting brings none
    if (all.every(({ code }) => code === "backend_unavailable"))
      return new DSecError("backend_unavailable", message, { details });
    const jitter = 1 + 2 * this.#parts.random();
    return new DSecError("no_capacity", message, {
      details,
      retryAfterMs: Math.round(retryAfterMs * jitter),
    });
  }
}

/** While the answer was on its way. */
function clientGone({ reason }: AbortSignal): DSecError {
  return new DSecError("cancelled", "nobody waits for the sandbox any more", {
    cause: reason,
    ambiguous: true,
  });
}

function isUnreachable({ code }: Refusal): boolean {
  return code === "node_unreachable";
}

function nameTaken(name: string, holder: string | undefined): DSecError {
  return new DSecError(
    "name_taken",
    `the name ${name} belongs to ${holder === undefined ? "a sandbox that is being made" : `sandbox ${holder}`}`,
    {
      details: { name, ...(holder === undefined ? {} : { holder }) },
    },
  );
}
