/**
 * A real fleet for tests: the built `dsec up` as a process of its own, with its own data, run directory, instance and address
 * range, so that it runs beside a real one and beside others of its kind. The layer store is the machine's.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { freshNetworkRange } from "../setup/network-range.ts";
import { DSecClient } from "../../src/sdk/index.ts";

export const dsecProgram = join(import.meta.dirname, "../../dist/bin/dsec.js");
export const machineLayerStore = process.env["DSEC_TEST_LAYER_STORE"] ?? "/var/lib/dsec/layers";

/** What a command line did. */
export interface CommandResult {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stdoutBytes: Buffer;
  readonly stderr: string;
}

export interface CommandOptions {
  readonly stdin?: string | Uint8Array;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

export interface FleetOptions {
  /** Further flags of `dsec up`. */
  readonly flags?: readonly string[];
  /** Directory of the data directory. */
  readonly parent?: string;
  /** One that has what is needed; the machine's unless given. */
  readonly layerStore?: string;
  /** More for the environment of `dsec up`. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface Fleet extends AsyncDisposable {
  /** `unix:/…` of the coordinator. */
  readonly address: string;
  readonly token: string;
  readonly dataDir: string;
  readonly runDir: string;
  readonly instance: string;
  /** Makes `dsec` and the SDK speak to this fleet. */
  readonly env: Readonly<Record<string, string>>;
  /** Process of coordinator and daemon. */
  readonly pid: number;
  /** Runs one command line of the built program to its end. */
  dsec(argv: readonly string[], options?: CommandOptions): Promise<CommandResult>;
  /** Starts one and hands it over. */
  spawn(argv: readonly string[], options?: CommandOptions): ChildProcess;
  client(): Promise<DSecClient>;
  /** Ends the fleet's process by a signal and waits for its end; sandboxes go on. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Starts it again after {@link kill}; resolves when it answers. */
  restart(): Promise<void>;
}

/** Starts a fleet; resolves when it answers. Disposal ends it with all its sandboxes and removes its directories. */
export async function startFleet(options: FleetOptions = {}): Promise<Fleet> {
  const dataDir = await mkdtemp(join(options.parent ?? "/tmp", "dsec-data-"));
  // short: Unix sockets below it have at most 107 bytes
  const runDir = await mkdtemp("/tmp/dsec-run-");
  const instance = `t${randomBytes(4).toString("hex")}`;
  const env = {
    DSEC_DATA_DIR: dataDir,
    DSEC_RUN_DIR: runDir,
    DSEC_INSTANCE: instance,
    DSEC_CONFIG: join(dataDir, "config.yaml"),
    DSEC_ADDRESS: "",
    DSEC_TOKEN: "",
    DSEC_CONTEXT: "",
  };
  const docker = process.env["DSEC_TEST_DOCKER_SOCKET"];
  const argv = [
    "up",
    "--layer-store",
    options.layerStore ?? machineLayerStore,
    "--network-range",
    freshNetworkRange(),
    ...(docker === undefined ? [] : ["--docker-socket", docker]),
    ...(options.flags ?? []),
  ];
  if (options.layerStore === undefined) await addBusybox(env);
  const upEnv = { ...env, ...options.env };
  let up = await startUp(argv, upEnv, dataDir);
  const token = (await readFile(join(dataDir, "token"), "utf8")).trim();
  const address = `unix:${join(runDir, "coordinator.sock")}`;
  const fleet: Fleet = {
    address,
    token,
    dataDir,
    runDir,
    instance,
    env,
    get pid() {
      return up.pid ?? 0;
    },
    dsec: async (command, given = {}) => finish(spawnDsec(command, env, given), given.stdin),
    spawn: (command, given = {}) => spawnDsec(command, env, given),
    client: async () => DSecClient.open({ address, token }),
    async kill(signal) {
      if (up.exitCode !== null || up.signalCode !== null) return;
      const ended = once(up, "exit");
      up.kill(signal);
      await ended;
    },
    async restart() {
      up = await startUp(argv, upEnv, dataDir);
    },
    async [Symbol.asyncDispose]() {
      if (up.exitCode === null && up.signalCode === null) {
        const ended = once(up, "exit");
        const down = await fleet.dsec(["down"]);
        if (down.code !== 0) up.kill("SIGKILL");
        await ended;
        if (down.code !== 0) throw new Error(`dsec down failed: ${down.stderr}\n${await tailOfLog(dataDir)}`);
      }
      await rm(dataDir, { recursive: true, force: true });
      await rm(runDir, { recursive: true, force: true });
    },
  };
  return fleet;
}

async function addBusybox(env: Readonly<Record<string, string>>): Promise<void> {
  const layer = ["layer", "build", "busybox:latest", "--from", "busybox", "--if-missing"];
  const built = await runDsec([...layer, "--layer-store", machineLayerStore], env);
  if (built.code !== 0) throw new Error(`no layer to run sandboxes from: ${built.stderr}`);
}

/** Runs a command line of the built program that needs no fleet of its own. */
export async function runDsec(
  argv: readonly string[],
  env: Readonly<Record<string, string>> = {},
  options: CommandOptions = {},
): Promise<CommandResult> {
  return finish(spawnDsec(argv, env, options), options.stdin);
}

/** Starts a command line of the built program and hands it over. */
export function spawnDsec(
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
  options: CommandOptions = {},
): ChildProcess {
  return spawn(process.execPath, ["--", dsecProgram, ...argv], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, NO_COLOR: "1", ...env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
}

async function finish(child: ChildProcess, stdin: string | Uint8Array | undefined): Promise<CommandResult> {
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout?.on("data", (chunk: Buffer) => stdout.push(chunk));
  child.stderr?.on("data", (chunk: Buffer) => stderr.push(chunk));
  // a program that does not read its stdin may end before all of it is written
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(stdin);
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  const stdoutBytes = Buffer.concat(stdout);
  return {
    code,
    signal,
    stdoutBytes,
    stdout: stdoutBytes.toString(),
    stderr: Buffer.concat(stderr).toString(),
  };
}

async function startUp(
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
  dataDir: string,
): Promise<ChildProcess> {
  const log = await open(logOf(dataDir), "a");
  const up = spawn(process.execPath, [dsecProgram, ...argv], {
    stdio: ["ignore", log.fd, log.fd, "ipc"],
    env: { ...process.env, ...env },
  });
  await log.close();
  const ready = await Promise.race([
    once(up, "message").then(([message]) => (message as { readonly type: string }).type === "ready"),
    once(up, "exit").then(() => false),
  ]);
  if (!ready) throw new Error(`dsec up failed:\n${await tailOfLog(dataDir)}`);
  up.disconnect();
  return up;
}

function logOf(dataDir: string): string {
  return join(dataDir, "up.log");
}

async function tailOfLog(dataDir: string): Promise<string> {
  return (await readFile(logOf(dataDir), "utf8")).split("\n").slice(-20).join("\n");
}
