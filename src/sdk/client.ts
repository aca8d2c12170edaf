import { DSecError } from "../protocol/errors.ts";
import type { LayerRelease, NodeLayerList } from "../protocol/layer.ts";
import type { NodeList, ServerVersion } from "../protocol/node.ts";
import { idempotencyHeader } from "../protocol/routes.ts";
import type {
  ReclaimResult,
  Sandbox as SandboxInfo,
  SandboxFilter,
  SandboxList,
  SandboxSpecInput,
  WatchEvent,
} from "../protocol/sandbox.ts";
import { HttpClient } from "../wire/client/http-client.ts";
import { type Connection, type OpenOptions, resolveConnection } from "./open-connection.ts";
import { Policies, type PolicyLike, wireChoice } from "./policies.ts";
import { Ports } from "./ports.ts";
import { type CallOptions, Sandbox } from "./sandbox.ts";
import { watchSandboxes } from "./watch.ts";

/** What a container is made from: image, `memoryMb`, `cpus`, `ttlRunningStop` in seconds, `networkRules`, `initUser`… */
export type ContainerArgs = Omit<SandboxArgs, "backend" | "simulation">;

/** What a sandbox is made from; the rules of a policy also by their texts. */
export type SandboxArgs = Omit<SandboxSpecInput, "networkPolicy"> & {
  readonly networkPolicy?: PolicyLike | undefined;
};

export interface CreateOptions extends CallOptions {
  /** Seconds until the sandbox must run; default 120. */
  readonly timeout?: number;
  /** The same key within 24 hours gives the same sandbox. Made up where none is given, so that retries are safe. */
  readonly idempotencyKey?: string;
}

export interface ListOptions extends CallOptions {
  /** At most this many; all by default. */
  readonly limit?: number;
  readonly cursor?: string;
  /** With what each uses now. */
  readonly usage?: boolean;
}

export interface SandboxPage {
  readonly items: Sandbox[];
  /** For the next page, when `limit` cut the list. */
  readonly nextCursor: string | undefined;
  /** Nodes that did not answer: their sandboxes are missing. */
  readonly unreachable: readonly string[];
}

export interface ReclaimArgs {
  readonly filter?: SandboxFilter;
  /** Seconds a sandbox must have been idle. */
  readonly idleFor?: number;
  /** Only show what would be ended. */
  readonly dryRun?: boolean;
}

const defaultTimeoutSeconds = 120;
/** Of Node's timers; a longer one would fire at once. */
const longestTimerMs = 2_147_483_647;

/** A client of one fleet. Errors are {@link DSecError}s; `await using` closes it. */
export class DSecClient implements AsyncDisposable {
  readonly #http: HttpClient;
  readonly #connection: Connection;
  readonly #ports: Ports;
  #policies: Policies | undefined;

  private constructor(connection: Connection) {
    const { address, token, ca } = connection;
    this.#connection = connection;
    this.#ports = new Ports(connection);
    this.#http = new HttpClient({ address, token, peer: "coordinator", ...(ca === undefined ? {} : { ca }) });
  }

  /**
   * Finds the fleet: option, then environment, then config file, then the one on this machine. Connects at the first call.
   * @throws DSecError `config_invalid`, `invalid_argument`, `unauthenticated` when there is no token, `coordinator_unreachable`
   */
  static async open(options: OpenOptions = {}): Promise<DSecClient> {
    return new DSecClient(await resolveConnection(options));
  }

  /** Named network policies. */
  get policies(): Policies {
    return (this.#policies ??= new Policies(this.#http));
  }

  /** Where the coordinator is. */
  get address(): string {
    return this.#connection.address;
  }

  /**
   * Makes a container; resolves when it runs.
   * @throws DSecError `image_not_found`, `no_capacity`, `start_timeout`, `unknown_registry`, `network_policy_unsupported`, …
   */
  async runContainer(args: ContainerArgs, options: CreateOptions = {}): Promise<Sandbox> {
    return this.createSandbox({ ...args, backend: "container" }, options);
  }

  /** Makes a sandbox of any backend; resolves when it runs. */
  async createSandbox(args: SandboxArgs, options: CreateOptions = {}): Promise<Sandbox> {
    const { timeout = defaultTimeoutSeconds, idempotencyKey = crypto.randomUUID(), signal } = options;
    if (!/^[\x21-\x7e]{1,255}$/.test(idempotencyKey))
      throw new DSecError("invalid_argument", "idempotencyKey: must be 1 to 255 printable ASCII characters");
    const { networkPolicy, ...rest } = args;
    const spec =
      networkPolicy === undefined ? rest : { ...rest, networkPolicy: await wireChoice(networkPolicy) };
    const expired = new AbortController();
    const timer = setTimeout(
      () => expired.abort(new DSecError("start_timeout", `no sandbox ran within ${timeout} s`)),
      Math.min(timeout * 1000, longestTimerMs),
    );
    try {
      const info = await this.#http.json<SandboxInfo>("createSandbox", {
        body: spec,
        headers: { [idempotencyHeader]: idempotencyKey },
        idempotent: true,
        signal: signal === undefined ? expired.signal : AbortSignal.any([signal, expired.signal]),
      });
      return this.#sandbox(info);
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param ref an id, a unique prefix of one, or a name @throws DSecError `not_found`, `ambiguous_reference` */
  async get(ref: string, options: CallOptions = {}): Promise<Sandbox> {
    return this.#sandbox(await this.#http.json<SandboxInfo>("getSandbox", { params: { ref }, ...options }));
  }

  /** Live sandboxes, unless the filter says otherwise. Follows the pages of the server. */
  async list(filter: SandboxFilter = {}, options: ListOptions = {}): Promise<SandboxPage> {
    const { limit = Number.POSITIVE_INFINITY, signal, usage } = options;
    const items: Sandbox[] = [];
    const unreachable = new Set<string>();
    let cursor = options.cursor;
    do {
      const left = limit - items.length;
      const page = await this.#http.json<SandboxList>("listSandboxes", {
        query: { ...filter, usage, cursor, limit: Math.min(left, 1000) },
        signal,
      });
      for (const info of page.items) items.push(this.#sandbox(info));
      for (const node of page.unreachable ?? []) unreachable.add(node);
      cursor = page.nextCursor;
    } while (cursor !== undefined && items.length < limit);
    return { items, nextCursor: cursor, unreachable: [...unreachable] };
  }

  /** A snapshot of the sandboxes, `synced`, then every change; goes on over lost connections. */
  watch(filter: SandboxFilter = {}, options: CallOptions = {}): AsyncGenerator<WatchEvent, void, undefined> {
    return watchSandboxes(this.#http, { ...filter }, options.signal);
  }

  async nodes(options: CallOptions = {}): Promise<NodeList["items"]> {
    return (await this.#http.json<NodeList>("listNodes", options)).items;
  }

  /** The nodes after fresh probes of every backend: what works, what does not, and how to mend it. */
  async doctor(options: CallOptions = {}): Promise<NodeList["items"]> {
    return (await this.#http.json<NodeList>("doctor", { ...options, idempotent: true })).items;
  }

  /** Layers that nodes use, by node: whose roots they are part of, and with `heat` how much of them was read. @param options `digests`: only of these, at most 64 */
  async layers(
    options: CallOptions & { readonly heat?: boolean; readonly digests?: readonly string[] } = {},
  ): Promise<NodeLayerList> {
    const { heat = false, digests, signal } = options;
    return this.#http.json<NodeLayerList>("listLayers", { query: { heat, digest: digests }, signal });
  }

  /** Lets nodes unmount layers that they only keep for the next sandbox. @returns those of `digests` that are in use */
  async releaseLayers(digests: readonly string[], options: CallOptions = {}): Promise<NodeLayerList> {
    const body: LayerRelease = { digests: [...digests] };
    return this.#http.json<NodeLayerList>("releaseLayers", { body, ...options, idempotent: true });
  }

  /** Ends idle sandboxes now. */
  async reclaim(request: ReclaimArgs = {}, options: CallOptions = {}): Promise<ReclaimResult> {
    return this.#http.json<ReclaimResult>("reclaim", { body: request, ...options });
  }

  /** Of the coordinator; needs no token. */
  async version(options: CallOptions = {}): Promise<ServerVersion> {
    return this.#http.json<ServerVersion>("version", options);
  }

  /** Ends the fleet's process; sandboxes stay for the next one unless told otherwise. */
  async shutdown(options: CallOptions & { readonly sandboxes?: "keep" | "stop" } = {}): Promise<void> {
    const { sandboxes = "keep", signal } = options;
    await this.#http.json("shutdown", { query: { sandboxes }, signal });
  }

  /** Cuts its connections; sandboxes go on. */
  async close(): Promise<void> {
    this.#http.close();
    this.#ports.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #sandbox(info: SandboxInfo): Sandbox {
    return new Sandbox(this.#http, this.#connection, this.#ports, info);
  }
}
