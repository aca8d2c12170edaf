import type Docker from "dockerode";
import type { ContainerInspectInfo, ContainerStats } from "dockerode";
import type { AgentConnection } from "../../../agent/connection.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { Usage } from "../../../protocol/sandbox.ts";
import type { BackendEnd, Limits, Running } from "../../backend.ts";
import { removeCgroup } from "../../linux/cgroup-removal.ts";
import type { Cgroup } from "../../linux/cgroup.ts";
import { isErrno } from "../../linux/libc.ts";
import { identifyProcess, type ProcessIdentity } from "../../linux/process.ts";
import type { AttachStream } from "./attach-stream.ts";
import { containerCgroup, isInContainer } from "./container-cgroup.ts";
import { resourceOptions } from "./container-options.ts";
import { removeContainer } from "./container-removal.ts";
import { asDSecError, connectionCode, statusOf } from "./docker-error.ts";
import type { DockerRecord } from "./docker-record.ts";
import type { ImageDefaults } from "./image-store.ts";

/** Milliseconds that Docker gets to notice the end of a container whose stream has ended. */
const exitNoticeMs = 5000;
const nanosPerSecond = 1e9;
const SIGKILL_EXIT = 137;

export interface DockerSandboxParts {
  readonly docker: Docker;
  /** Whether the Docker daemon is on this machine: for exact figures and a confirmed end. */
  readonly here: boolean;
  readonly record: DockerRecord;
  readonly stream: AttachStream;
  readonly guest: AgentConnection;
}

export class DockerSandbox implements Running {
  readonly record: DockerRecord;
  readonly guest: AgentConnection;
  readonly imageDefaults: ImageDefaults;
  readonly address?: string;
  readonly ended: Promise<BackendEnd>;
  readonly #parts: DockerSandboxParts;
  readonly #container: Docker.Container;
  #cgroup: Cgroup | undefined;
  #destruction: Promise<void> | undefined;
  /** True from the moment that the end of the stream is our own doing. */
  #letGo = false;

  constructor(parts: DockerSandboxParts) {
    this.#parts = parts;
    this.#container = parts.docker.getContainer(parts.record.containerId);
    this.record = parts.record;
    this.guest = parts.guest;
    this.imageDefaults = parts.record.imageDefaults;
    if (parts.record.address !== undefined) this.address = parts.record.address;
    const ended = Promise.withResolvers<BackendEnd>();
    this.ended = ended.promise;
    void parts.guest.closed.then(async () => {
      if (this.#letGo) return;
      const end = await explainEnd(this.#container, parts.stream);
      if (!this.#letGo) ended.resolve(end);
    });
  }

  async usage(): Promise<Usage> {
    try {
      const cgroup = await this.#findCgroup();
      if (cgroup !== undefined) return { ...cgroup.usage(), diskBytes: 0 };
      return usageFrom(await this.#container.stats({ stream: false, "one-shot": true }));
    } catch (error) {
      if (isErrno(error, "ENOENT", "ENODEV") && connectionCode(error) === undefined) {
        throw new DSecError("sandbox_not_running", "the container is gone", { cause: error });
      }
      throw asDSecError(error, "sandbox_not_running", "the container's usage cannot be read");
    }
  }

  async firstProcess(): Promise<ProcessIdentity | undefined> {
    if (!this.#parts.here) return undefined;
    const { State } = await this.#container.inspect();
    const first = State.Running ? identifyProcess(State.Pid) : undefined;
    return first !== undefined && isInContainer(this.record.containerId, first.pid) ? first : undefined;
  }

  async update(limits: Partial<Limits>): Promise<void> {
    try {
      await this.#container.update(resourceOptions({ ...limits, class: this.#parts.record.class }));
    } catch (error) {
      if (statusOf(error) === 404) {
        throw new DSecError("sandbox_not_running", "the container is gone", { cause: error });
      }
      throw asDSecError(error, "conflict", "the Docker daemon refused the new limits");
    }
  }

  destroy(): Promise<void> {
    this.drop();
    this.#destruction ??= this.#remove().catch((error: unknown) => {
      // The next call tries again.
      this.#destruction = undefined;
      throw asDSecError(error, "internal", "the container could not be removed completely");
    });
    return this.#destruction;
  }

  /** Lets go of it; what runs inside goes on. */
  drop(): void {
    this.#letGo = true;
    this.guest.close();
  }

  async #remove(): Promise<void> {
    // Found while it still has a process to find it by.
    const cgroup = await this.#findCgroup().catch((error: unknown) => {
      if (statusOf(error) !== 404) throw error;
      return undefined;
    });
    await removeContainer(this.#parts.docker, this.#parts.record.containerId);
    if (cgroup !== undefined) await removeCgroup(cgroup);
  }

  async #findCgroup(): Promise<Cgroup | undefined> {
    if (this.#parts.here && this.#cgroup === undefined) {
      const { State } = await this.#container.inspect();
      if (State.Running) this.#cgroup = containerCgroup(this.#parts.record.containerId, State.Pid);
    }
    return this.#cgroup;
  }
}

/** Why a container that was not stopped by us has ended. */
async function explainEnd(container: Docker.Container, stream: AttachStream): Promise<BackendEnd> {
  try {
    await container.wait({ abortSignal: AbortSignal.timeout(exitNoticeMs) });
  } catch (error) {
    if (statusOf(error) === 404) return { reason: "agent_lost", message: "the container was removed" };
    return { reason: "agent_lost", message: "the connection to the agent was lost" };
  }
  try {
    return endFrom(await container.inspect(), stream.stderr);
  } catch {
    return { reason: "agent_lost", message: "the container was removed" };
  }
}

/** The end that a stopped container's state tells of. */
export function endFrom({ State }: ContainerInspectInfo, stderr: string): BackendEnd {
  // OOMKilled is set once any process was killed for memory; only a killed agent has ended the sandbox by it.
  if (State.OOMKilled && State.ExitCode === SIGKILL_EXIT) {
    return { reason: "oom", message: "the sandbox ran out of memory and its agent was killed" };
  }
  const said = stderr === "" ? "" : `: ${stderr}`;
  return { reason: "agent_lost", message: `the agent ended with exit code ${State.ExitCode}${said}` };
}

function usageFrom(stats: ContainerStats): Usage {
  const { memory_stats: memory, cpu_stats: cpu, pids_stats: pids } = stats;
  const details = memory.stats as Partial<Record<string, number>> | undefined;
  const inactive = details?.["total_inactive_file"] ?? details?.["inactive_file"] ?? 0;
  return {
    memoryBytes: Math.max(0, memory.usage - inactive),
    cpuSeconds: cpu.cpu_usage.total_usage / nanosPerSecond,
    pids: pids?.current ?? 0,
    diskBytes: 0,
    oomKills: 0,
  };
}
