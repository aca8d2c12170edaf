import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { AgentConnection } from "../../../agent/connection.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { StartRequest } from "../../backend.ts";
import { isErrno, LinuxError } from "../../linux/libc.ts";
import { startAborted } from "../../start-aborted.ts";
import type { Cgroup } from "../../linux/cgroup.ts";
import { openListeningSocket } from "../../linux/listening-socket.ts";
import { identifyProcess, type ProcessIdentity } from "../../linux/process.ts";
import { openAgent } from "./agent-link.ts";
import type { Host } from "./host.ts";
import { checkMountPoints } from "./mount-points.ts";
import { writeNetworkFiles } from "./network-files.ts";
import { ociConfig } from "./oci-config.ts";
import { readFailure, type RuntimeProcess, spawnRuntime } from "./runtime.ts";
import type { SandboxPaths } from "./sandbox-paths.ts";
import { checkUserFiles } from "./user-files.ts";

export interface Launched {
  readonly init: ProcessIdentity;
  readonly guest: AgentConnection;
}

/**
 * Reserves a sandbox's directory. Whoever has it may clean up under the id.
 *
 * @throws DSecError `conflict` when the id is in use
 */
export function claim(paths: SandboxPaths, id: string): void {
  mkdirSync(paths.directory, { recursive: true, mode: 0o700 });
  try {
    mkdirSync(paths.bundle, { mode: 0o700 });
  } catch (error) {
    if (isErrno(error, "EEXIST"))
      throw new DSecError("conflict", `sandbox ${id} is there already`, { cause: error });
    throw error;
  }
}

/** Starts a claimed sandbox. What a failure leaves is for the caller to remove; the runtime has ended by then. */
export async function launch(
  host: Host,
  paths: SandboxPaths,
  cgroup: Cgroup,
  request: StartRequest,
  signal: AbortSignal,
): Promise<Launched> {
  const rootPath = preparedDirectory(request);
  checkMountPoints(rootPath);
  checkUserFiles(rootPath);
  const { hostname, network } = request;
  writeNetworkFiles(rootPath, { hostname, address: network?.address, nameServer: network?.nameServer });
  const create = host.runtime.launcher === undefined ? undefined : host.cgroups.create;
  const config = ociConfig({
    hostname: request.hostname,
    rootPath,
    agentBinary: host.agentBinary,
    netnsPath: request.network?.netnsPath,
    cgroupPath: create === undefined ? cgroup.path : undefined,
    limits: request.limits,
    host: host.traits,
  });
  writeFileSync(paths.config, config, { mode: 0o600 });
  const joins = create?.(cgroup.path, request.limits) ?? [];
  const socket = openListeningSocket(paths.socket);
  let runtime: RuntimeProcess;
  try {
    runtime = await spawnRuntime(host.runtime, request.id, paths, joins, socket.fd);
  } finally {
    socket.close();
  }
  const launched = await greet(runtime, paths, signal);
  // Before anything runs in it: what no runtime sets, the limit of socket buffers on cgroup v1.
  if (create === undefined && host.cgroups.mode !== "unified")
    cgroup.setLimits({ memoryBytes: request.limits.memoryBytes });
  return launched;
}

/**
 * The agent is greeted while the runtime still works: the connection waits in the socket's queue, and breaks when the runtime fails, as
 * nobody holds the socket then.
 */
async function greet(runtime: RuntimeProcess, paths: SandboxPaths, signal: AbortSignal): Promise<Launched> {
  const failed = new AbortController();
  const opening = openAgent(paths.socket, AbortSignal.any([signal, failed.signal]));
  opening.catch(() => undefined);
  const kill = () => runtime.kill();
  // The signal may have fired while the runtime was being spawned.
  if (signal.aborted) kill();
  signal.addEventListener("abort", kill);
  try {
    // From its end on the runtime's process group may be another's.
    const exit = await runtime.exited.finally(() => signal.removeEventListener("abort", kill));
    signal.throwIfAborted();
    if (exit.code !== 0) throw new Error(readFailure(paths) || `it ended with ${exit.code ?? exit.signal}`);
    const init = identifyProcess(Number(readFileSync(paths.pidFile, "utf8")));
    if (init === undefined) throw new Error(readFailure(paths) || "the agent ended at once");
    return { init, guest: await opening };
  } catch (error) {
    failed.abort();
    await opening.then(
      (guest) => guest.close(),
      () => undefined,
    );
    throw error;
  }
}

function preparedDirectory({ root }: StartRequest): string {
  if (root.type !== "directory")
    throw new DSecError("invalid_argument", `runc needs a prepared root, not '${root.type}'`);
  return root.path;
}

/** What to tell of a start that failed. */
export function startError(error: unknown, signal: AbortSignal): DSecError {
  if (signal.aborted) return startAborted(signal);
  if (error instanceof DSecError && error.code !== "agent_lost" && error.code !== "cancelled") return error;
  if (isErrno(error, "ENOSPC", "EDQUOT"))
    return new DSecError("disk_full", "there is no room to start the sandbox", { cause: error });
  if (error instanceof LinuxError && error.syscall === "posix_spawn")
    return new DSecError("backend_unavailable", "the container runtime is gone", { cause: error });
  return new DSecError("start_failed", "the sandbox could not be started", { cause: error });
}
