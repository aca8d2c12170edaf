import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { afterAll, beforeAll } from "vitest";
import { agentBinaryPath } from "../../src/agent/agent-binary.ts";
import { AgentConnection } from "../../src/agent/connection.ts";
import type { GuestExec, GuestExecSpec, GuestExit } from "../../src/agent/guest.ts";
import { openListeningSocket } from "../../src/backends/linux/listening-socket.ts";

/** So that a test whose agent does not answer ends with a reason. */
const DEADLINE_MS = 20_000;

export interface RunningAgent {
  [Symbol.asyncDispose](): Promise<void>;
  readonly pid: number;
  readonly directory: string;
  /** An empty one below {@link directory}. */
  newDirectory(): string;
  /** A stream to it, before any greeting. */
  dialSocket(): Promise<Socket>;
  connect(window?: number): Promise<AgentConnection>;
}

export interface AgentLaunch {
  /** Put in front of the agent's own command. */
  readonly prefix?: readonly string[];
  readonly binary?: string;
}

/** An agent that accepts on a Unix socket. Ends, with all that it started, when disposed of. */
export async function startAgent(launch: AgentLaunch = {}): Promise<RunningAgent> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-agent-"));
  const path = join(directory, "s");
  const listening = openListeningSocket(path);
  const [command, ...rest] = [
    ...(launch.prefix ?? []),
    launch.binary ?? agentBinaryPath(),
    "--listen-fd",
    "3",
  ];
  const child = spawn(command, rest, { stdio: ["ignore", "ignore", "inherit", listening.fd], cwd: "/" });
  await once(child, "spawn");
  listening.close();
  const pid = child.pid ?? 0;
  const dialSocket = async (): Promise<Socket> => {
    const socket = createConnection({ path });
    await once(socket, "connect");
    return socket;
  };
  const connect = async (window?: number): Promise<AgentConnection> =>
    AgentConnection.open(await dialSocket(), {
      resync: false,
      signal: AbortSignal.timeout(DEADLINE_MS),
      ...(window === undefined ? {} : { window }),
    });
  return {
    pid,
    directory,
    newDirectory: () => mkdtempSync(join(directory, "t")),
    dialSocket,
    connect,
    async [Symbol.asyncDispose]() {
      await endAgent(child, connect);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** One agent for all tests of a file. @param made is handed it, with a connection, before the first of them */
export function shareAgent(made: (agent: RunningAgent, connection: AgentConnection) => void): void {
  let agent: RunningAgent | undefined;
  let connection: AgentConnection | undefined;
  beforeAll(async () => {
    agent = await startAgent();
    connection = await agent.connect();
    made(agent, connection);
  });
  afterAll(async () => {
    connection?.close();
    await agent?.[Symbol.asyncDispose]();
  });
}

async function endAgent(child: ChildProcess, connect: () => Promise<AgentConnection>): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  // A test may have killed it.
  const connection = await connect().catch(() => undefined);
  for (const { channel } of connection?.live ?? []) {
    const exec = await connection?.resume(channel, { stdout: 0, stderr: 0 }, () => {}).catch(() => undefined);
    exec?.release();
  }
  await connection?.ping();
  connection?.close();
  child.kill("SIGKILL");
  await exited;
}

export interface StdioAgent {
  [Symbol.asyncDispose](): Promise<void>;
  readonly pid: number;
  readonly process: ChildProcess;
  /** One host's use of the pipes. Destroying it leaves them open for the next. */
  borrow(): Duplex;
}

/** An agent on the pipes of its standard streams. */
export async function startStdioAgent(): Promise<StdioAgent> {
  const child = spawn(agentBinaryPath(), ["--stdio"], { stdio: ["pipe", "pipe", "inherit"], cwd: "/" });
  await once(child, "spawn");
  const { stdin, stdout } = child;
  stdin.on("error", () => {});
  return {
    pid: child.pid ?? 0,
    process: child,
    borrow() {
      const onData = (chunk: Buffer): void => {
        duplex.push(chunk);
      };
      const duplex = new Duplex({
        read() {},
        write(chunk: Buffer, _encoding, done) {
          stdin.write(chunk, done);
        },
        destroy(error, done) {
          stdout.off("data", onData);
          done(error);
        },
      });
      stdout.on("data", onData);
      return duplex;
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    },
  };
}

export function openOver(stream: Duplex): Promise<AgentConnection> {
  return AgentConnection.open(stream, { resync: true, signal: AbortSignal.timeout(DEADLINE_MS) });
}

export interface Result extends GuestExit {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

export type RunSpec = Partial<Omit<GuestExecSpec, "argv">>;

/** Collects what an exec writes. */
export class Collector {
  readonly #chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  readonly #watchers: { text: string; resolve: () => void }[] = [];

  readonly sink = (stream: "stdout" | "stderr", _offset: number, chunk: Buffer): void => {
    this.#chunks[stream].push(chunk);
    for (const { text, resolve } of this.#watchers) if (this.stdout.includes(text)) resolve();
  };

  get stdout(): Buffer {
    return Buffer.concat(this.#chunks.stdout);
  }

  get stderr(): Buffer {
    return Buffer.concat(this.#chunks.stderr);
  }

  /** Resolves when stdout contains the text. */
  seen(text: string): Promise<void> {
    return new Promise((resolve) => {
      this.#watchers.push({ text, resolve });
      if (this.stdout.includes(text)) resolve();
    });
  }
}

export interface Started {
  readonly exec: GuestExec;
  readonly output: Collector;
}

export async function start(
  connection: AgentConnection,
  argv: string[],
  spec: RunSpec = {},
): Promise<Started> {
  const output = new Collector();
  const exec = await connection.exec({ env: {}, stdin: false, ...spec, argv }, output.sink);
  return { exec, output };
}

/** Runs to the end and forgets it. */
export async function run(connection: AgentConnection, argv: string[], spec: RunSpec = {}): Promise<Result> {
  const { exec, output } = await start(connection, argv, spec);
  const exit = await exec.exit;
  exec.release();
  return { ...exit, stdout: output.stdout, stderr: output.stderr };
}

export function sh(script: string): string[] {
  return ["/bin/sh", "-c", script];
}
