import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { type DaemonParts, type RunningDaemon, startDaemon } from "../../src/daemon/daemon.ts";
import type { DaemonOptionsInput } from "../../src/daemon/options.ts";
import {
  type Coordinator,
  type CoordinatorOptions,
  startCoordinator,
} from "../../src/scheduler/coordinator/coordinator.ts";
import type { NodeList } from "../../src/protocol/node.ts";
import { HttpClient } from "../../src/wire/client/http-client.ts";
import { type CreateOptions, DSecClient, type Sandbox, type SandboxSpecInput } from "../../src/sdk/index.ts";

const log = pino({ level: process.env["DSEC_TEST_LOG"] ?? "silent" });
const nodeToken = "test-token-of-the-nodes";

interface FleetOptions {
  readonly daemon?: Partial<DaemonOptionsInput>;
  readonly coordinator?: Partial<CoordinatorOptions>;
  /** PEM that the client trusts. */
  readonly ca?: string;
  /** Whether the coordinator hands requests over to its nodes, as `dsec up` does; else they meet on sockets only. */
  readonly handsOver?: boolean;
}

/** A fleet of simulated nodes and their coordinator, in this process but over real sockets. Gone after the test. */
export class TestFleet {
  readonly dir: string;
  readonly daemons = new Map<string, RunningDaemon>();
  /** Of every node. */
  readonly nodeToken = nodeToken;
  readonly #names: readonly string[];
  readonly #ca: string | undefined;
  readonly #handsOver: boolean;
  #coordinator: Coordinator | undefined;
  #client: DSecClient | undefined;

  private constructor(dir: string, names: readonly string[], { ca, handsOver = false }: FleetOptions) {
    this.dir = dir;
    this.#handsOver = handsOver;
    this.#names = names;
    this.#ca = ca;
  }

  static async start(names: readonly string[] = ["n1"], options: FleetOptions = {}): Promise<TestFleet> {
    const dir = await mkdtemp(join(tmpdir(), "dsec-fleet-"));
    const fleet = new TestFleet(dir, names, options);
    onTestFinished(async () => fleet.#dispose());
    for (const name of names) await fleet.startNode(name, options.daemon);
    await fleet.startCoordinator(options.coordinator);
    return fleet;
  }

  get client(): DSecClient {
    if (this.#client === undefined) throw new Error("the fleet has no coordinator");
    return this.#client;
  }

  get coordinator(): Coordinator {
    if (this.#coordinator === undefined) throw new Error("the fleet has no coordinator");
    return this.#coordinator;
  }

  get address(): string {
    return `unix:${this.dir}/c.sock`;
  }

  async startNode(
    name: string,
    options: Partial<DaemonOptionsInput> = {},
    parts: DaemonParts = {},
  ): Promise<RunningDaemon> {
    const input: DaemonOptionsInput = {
      name,
      dataDir: join(this.dir, name, "data"),
      runDir: join(this.dir, name, "run"),
      token: nodeToken,
      backends: ["simulated"],
      memoryFloorMb: 0,
      diskFloorMb: 0,
      maxMemoryPressure: 100,
      ...options,
    };
    const daemon = await startDaemon(input, { log, ...parts });
    this.daemons.set(name, daemon);
    return daemon;
  }

  async stopNode(name: string): Promise<void> {
    await this.daemons.get(name)?.close({ stopSandboxes: true });
    this.daemons.delete(name);
  }

  /** Also after {@link stopCoordinator}: it takes up the store of its predecessor. */
  async startCoordinator(options: Partial<CoordinatorOptions> = {}): Promise<void> {
    this.#coordinator = await startCoordinator({
      dataDir: join(this.dir, "data"),
      listen: [this.address],
      nodes: this.#names.map((name) => ({
        name,
        address: `unix:${join(this.dir, name, "run", "daemon.sock")}`,
        token: nodeToken,
        local: this.#handsOver ? this.daemons.get(name)?.server : undefined,
      })),
      version: "0.0.0",
      log,
      probeIntervalMs: 50,
      ...options,
    });
    const [address = ""] = this.#coordinator.addresses;
    this.#client ??= await DSecClient.open({ address, token: this.#coordinator.token, ca: this.#ca });
  }

  async stopCoordinator(): Promise<void> {
    await this.#coordinator?.close();
    this.#coordinator = undefined;
  }

  async create(spec: Partial<SandboxSpecInput> = {}, options: CreateOptions = {}): Promise<Sandbox> {
    return this.client.createSandbox({ backend: "simulated", image: "none", ...spec }, options);
  }

  /** The coordinator, spoken to below the SDK. */
  http(): HttpClient {
    const [address = ""] = this.coordinator.addresses;
    const ca = this.#ca === undefined ? {} : { ca: this.#ca };
    const http = new HttpClient({ address, token: this.coordinator.token, peer: "coordinator", ...ca });
    onTestFinished(() => http.close());
    return http;
  }

  async register(name: string, address: string, token = "x".repeat(16)): Promise<void> {
    await this.http().json("registerNode", { params: { name }, body: { name, address, token } });
  }

  /** What the coordinator says of a node. */
  async node(name: string): Promise<NodeList["items"][number] | undefined> {
    return (await this.client.nodes()).find((each) => each.name === name);
  }

  async health(name: string): Promise<string | undefined> {
    return (await this.node(name))?.health;
  }

  async #dispose(): Promise<void> {
    await this.#client?.close();
    await this.stopCoordinator();
    for (const name of this.daemons.keys()) await this.stopNode(name);
    await rm(this.dir, { recursive: true, force: true });
  }
}
