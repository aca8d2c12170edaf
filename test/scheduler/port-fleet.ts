import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer as createHttpServer, type RequestListener, type Server as HttpServer } from "node:http";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { joinTunnel } from "../../src/daemon/ports/join-tunnel.ts";
import { DSecError } from "../../src/protocol/errors.ts";
import type { Sandbox as SandboxInfo } from "../../src/protocol/sandbox.ts";
import { type Coordinator, startCoordinator } from "../../src/scheduler/coordinator/coordinator.ts";
import { DSecClient, type Sandbox } from "../../src/sdk/index.ts";
import { WireServer } from "../../src/wire/server/server.ts";
import { acceptTunnel, checkTunnel } from "../../src/wire/server/tunnels.ts";
import type { TunnelStream } from "../../src/wire/tunnel-stream.ts";

const log = pino({ level: process.env["DSEC_TEST_LOG"] ?? "silent" });
const nodeToken = "test-token-of-the-nodes";
export const sandboxId = "n1-abcdefghij";

/**
 * A coordinator and a node whose one sandbox has the ports of this machine: services of a test stand for those inside. All sockets are
 * real, gone after the test.
 */
export class PortFleet {
  readonly coordinator: Coordinator;
  readonly client: DSecClient;
  readonly sandbox: Sandbox;
  /** Tunnels that the node has accepted so far. */
  readonly accepted: TunnelStream[] = [];
  #ended = false;

  private constructor(coordinator: Coordinator, client: DSecClient, sandbox: Sandbox) {
    this.coordinator = coordinator;
    this.client = client;
    this.sandbox = sandbox;
  }

  static async start(options: { readonly now?: () => number } = {}): Promise<PortFleet> {
    const dir = await mkdtemp(join(tmpdir(), "dsec-ports-"));
    const node = new WireServer({ role: "daemon", version: "0.0.0", token: nodeToken, log });
    const started: { fleet?: PortFleet } = {};
    node.handleUpgrade("port", async (upgrade) => {
      checkTunnel(upgrade);
      const { fleet } = started;
      if (fleet === undefined || fleet.#ended) throw notRunning();
      const service = connect({
        port: Number(upgrade.params["port"]),
        host: "127.0.0.1",
        allowHalfOpen: true,
      });
      await once(service, "connect").catch(() => {
        throw new DSecError("port_refused", `nobody listens on port ${upgrade.params["port"]}`);
      });
      const tunnel = acceptTunnel(upgrade);
      fleet.accepted.push(tunnel);
      joinTunnel(tunnel, service);
    });
    // only its id is looked at
    node.handle("getSandbox", async () => ({ id: sandboxId }) as SandboxInfo);
    const address = await node.listen(`unix:${join(dir, "node.sock")}`);
    const coordinator = await startCoordinator({
      dataDir: join(dir, "data"),
      listen: [`unix:${join(dir, "c.sock")}`, "http://127.0.0.1:0"],
      nodes: [{ name: "n1", address, token: nodeToken }],
      version: "0.0.0",
      log,
      probeIntervalMs: 3_600_000,
      ...options,
    });
    const [first = ""] = coordinator.addresses;
    const client = await DSecClient.open({ address: first, token: coordinator.token });
    onTestFinished(async () => {
      await client.close();
      await coordinator.close();
      await node.close();
      await rm(dir, { recursive: true, force: true });
    });
    started.fleet = new PortFleet(coordinator, client, await client.get(sandboxId));
    return started.fleet;
  }

  /** Where the coordinator serves HTTP to the sandbox's port, over TCP. */
  url(port: number, rest = "/"): string {
    return `${this.coordinator.addresses[1]}/v1/sandboxes/${sandboxId}/http/${port}${rest}`;
  }

  get authorization(): { readonly authorization: string } {
    return { authorization: `Bearer ${this.coordinator.token}` };
  }

  /** As a node does when a sandbox ends. */
  endSandbox(): void {
    this.#ended = true;
    for (const tunnel of this.accepted) tunnel.destroy(notRunning());
  }
}

function notRunning(): DSecError {
  return new DSecError("sandbox_not_running", `sandbox ${sandboxId} is stopped`, {
    details: { state: "stopped" },
  });
}

/** An HTTP service; gone after the test. @returns its port */
export async function httpService(listener: RequestListener): Promise<{ port: number; server: HttpServer }> {
  const server = createHttpServer(listener);
  const port = await listening(server);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port, server };
}

/** A TCP service; gone after the test. @returns its port */
export async function tcpService(listener: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    listener(socket);
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return listening(server);
}

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const bound = server.address();
  if (typeof bound !== "object" || bound === null) throw new Error("no port");
  return bound.port;
}
