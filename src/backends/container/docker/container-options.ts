import type { ContainerCreateOptions, HostConfig } from "dockerode";
import type { Limits, StartRequest } from "../../backend.ts";
import { cpuPeriodMicros, cpuQuotaMicros, cpuShares } from "../../linux/cgroup-values.ts";
import { grantedCapabilities } from "../runc/capabilities.ts";
import { maskedPaths, readOnlyPaths } from "../runc/hidden-paths.ts";
import { agentPathInside } from "./agent-archive.ts";

/** What finds a container again, by whoever started it. */
export const labels = { instance: "dsec.instance", id: "dsec.id" } as const;

/** The same for every start of a sandbox, so that a second one is refused. */
export function containerName(instance: string, id: string): string {
  return `${instance}-${id}`;
}

export interface ContainerOptions {
  readonly instance: string;
  /** The agent on this machine, to be mounted; undefined where the Docker daemon cannot see this machine's files. */
  readonly agentMount: string | undefined;
  /** Whether the agent can be made the last to be killed for memory. */
  readonly protectsAgents: boolean;
}

/** Docker's seccomp profile lets audit records through, and a login that may not write them fails. */
const capabilities = [...grantedCapabilities, "CAP_AUDIT_WRITE"];

/** Killed for memory last of all: without its agent the sandbox is lost. The agent's children start at 0. */
const oomScoreAdj = -998;

/** A container whose only process is the agent, speaking over the container's standard streams. */
export function containerOptions(
  request: StartRequest,
  image: string,
  options: ContainerOptions,
): ContainerCreateOptions {
  return {
    name: containerName(options.instance, request.id),
    Image: image,
    Hostname: request.hostname,
    Labels: { [labels.instance]: options.instance, [labels.id]: request.id },
    Entrypoint: [agentPathInside, "--stdio"],
    Cmd: [],
    User: "0",
    WorkingDir: "/",
    Healthcheck: { Test: ["NONE"] },
    StopSignal: "SIGKILL",
    Tty: false,
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    // The agent must outlive the attach connection: its stdin stays open when a daemon goes.
    OpenStdin: true,
    StdinOnce: false,
    HostConfig: { ...hostConfig(request.limits, options), ...nameOptions(request) },
  };
}

function hostConfig(limits: Limits, options: ContainerOptions): HostConfig {
  return {
    ...resourceOptions(limits),
    // Never one of Docker's own networks: what leads out of the sandbox is the link that the daemon puts into it.
    NetworkMode: "none",
    CapDrop: ["ALL"],
    CapAdd: capabilities,
    SecurityOpt: ["no-new-privileges"],
    MaskedPaths: [...maskedPaths],
    ReadonlyPaths: [...readOnlyPaths],
    ShmSize: Math.floor(limits.memoryBytes / 2),
    LogConfig: { Type: "none", Config: {} },
    Init: false,
    AutoRemove: false,
    RestartPolicy: { Name: "no" },
    ...(options.protectsAgents ? { OomScoreAdj: oomScoreAdj } : {}),
    ...(options.agentMount === undefined
      ? {}
      : {
          Mounts: [{ Type: "bind", Source: options.agentMount, Target: agentPathInside, ReadOnly: true }],
        }),
  };
}

/** What /etc/resolv.conf and /etc/hosts say, which Docker writes. "." is Docker's word for no search domains. */
function nameOptions({ hostname, link }: StartRequest): Pick<HostConfig, "Dns" | "DnsSearch" | "ExtraHosts"> {
  if (link === undefined) return {};
  return { Dns: [link.nameServer], DnsSearch: ["."], ExtraHosts: [`${hostname}:${link.address}`] };
}

/** Docker's resource fields, of a creation and of an update alike. A quota can be taken away again, NanoCpus cannot. */
export function resourceOptions(
  limits: Partial<Limits> & Pick<Limits, "class">,
): Pick<HostConfig, "Memory" | "MemorySwap" | "CpuShares" | "CpuPeriod" | "CpuQuota" | "PidsLimit"> {
  const { memoryBytes, cpus, cpuLimit, pids } = limits;
  return {
    ...(memoryBytes === undefined ? {} : { Memory: memoryBytes, MemorySwap: memoryBytes }),
    ...(cpus === undefined ? {} : { CpuShares: cpuShares({ cpus, class: limits.class }) }),
    ...(cpuLimit === undefined
      ? {}
      : { CpuPeriod: cpuPeriodMicros, CpuQuota: cpuQuotaMicros(cpuLimit) ?? -1 }),
    ...(pids === undefined ? {} : { PidsLimit: pids }),
  };
}
