import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { type DaemonParts, type RunningDaemon, startDaemon } from "../../src/daemon/daemon.ts";
import type { DaemonOptionsInput } from "../../src/daemon/options.ts";
import type { ExecSpecInput, ExecStatus } from "../../src/protocol/exec.ts";
import { sandboxIdFrom } from "../../src/protocol/names.ts";
import type { Sandbox, SandboxSpecInput } from "../../src/protocol/sandbox.ts";
import { HttpClient } from "../../src/wire/client/http-client.ts";
import { ExecSocket } from "./exec-socket.ts";

export const token = "test-token-of-the-daemon";
export const node = "n1";

/** A directory that is gone after the test. */
export async function temporaryDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-daemon-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Has something done at the end of a test, or of several; what was asked for last comes first. */
export type AtEnd = (work: () => Promise<void>) => void;

/** A daemon of the test, with what it takes to talk to it through its socket. */
export class TestDaemon {
  readonly dir: string;
  readonly running: RunningDaemon;
  readonly http: HttpClient;

  private constructor(dir: string, running: RunningDaemon) {
    this.dir = dir;
    this.running = running;
    this.http = new HttpClient({ address: running.address, token, peer: "node" });
  }

  /** Starts one; it ends with the test. @param options `dir`: that of an earlier one, which has ended */
  static async start(
    options: Partial<DaemonOptionsInput> & { dir?: string } = {},
    parts: DaemonParts = {},
    atEnd: AtEnd = onTestFinished,
  ): Promise<TestDaemon> {
    const { dir = await temporaryDir(), ...rest } = options;
    const log = pino({ level: process.env["DSEC_TEST_LOG"] ?? "silent" });
    const input = { ...testOptions(dir), ...rest };
    const daemon = new TestDaemon(dir, await startDaemon(input, { log, ...parts }));
    atEnd(async () => daemon.close());
    return daemon;
  }

  async close(): Promise<void> {
    this.http.close();
    await this.running.close({ stopSandboxes: true });
  }

  /** Ends the daemon, not its sandboxes. */
  async leave(): Promise<void> {
    this.http.close();
    await this.running.close();
  }

  newId(): string {
    return sandboxIdFrom(node, randomBytes(10));
  }

  async place(spec: Partial<SandboxSpecInput> = {}, id = this.newId()): Promise<Sandbox> {
    const body = { id, owner: "alice", spec: { backend: "simulated", image: "none", ...spec } };
    return this.http.json<Sandbox>("placeSandbox", { params: { id }, body, idempotent: false });
  }

  async get(ref: string): Promise<Sandbox> {
    return this.http.json<Sandbox>("getSandbox", { params: { ref } });
  }

  async stop(ref: string): Promise<Sandbox> {
    return this.http.json<Sandbox>("stopSandbox", { params: { ref }, body: {} });
  }

  async remove(ref: string): Promise<void> {
    await this.http.json("removeSandbox", { params: { ref } });
  }

  async touch(ref: string, body: object = {}): Promise<Sandbox> {
    return this.http.json<Sandbox>("touchSandbox", { params: { ref }, body });
  }

  /** Resolves when the sandbox has ended. */
  async wait(ref: string): Promise<Sandbox> {
    return this.http.json<Sandbox>("waitSandbox", { params: { ref }, query: { timeoutMs: 30_000 } });
  }

  async metrics(): Promise<string> {
    const response = await this.http.raw({ method: "GET", path: "/metrics", headers: {} });
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    return Buffer.concat(chunks).toString("utf8");
  }

  async exec(ref: string, argv: string[], spec: Partial<ExecSpecInput> = {}): Promise<ExecSocket> {
    const socket = await ExecSocket.open(this.running.address, token, ref);
    socket.start({ argv, ...spec });
    return socket;
  }

  /** Runs a command to its end. */
  async run(
    ref: string,
    argv: string[],
    spec: Partial<ExecSpecInput> = {},
  ): Promise<{ status: ExecStatus; stdout: string }> {
    const socket = await this.exec(ref, argv, spec);
    const status = await socket.status;
    return { status, stdout: socket.stdout.toString("utf8") };
  }
}

export function testOptions(dir: string): DaemonOptionsInput {
  return {
    name: node,
    dataDir: join(dir, "data"),
    runDir: join(dir, "run"),
    instance: "dsectestdaemon",
    token,
    backends: ["simulated"],
    memoryFloorMb: 0,
    diskFloorMb: 0,
    maxMemoryPressure: 100,
  };
}
