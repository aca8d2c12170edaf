import type { ContainerCreateOptions, HostConfig } from "dockerode";
import type { Limits, StartRequest } from "../../backend.ts";
import { cpuPeriodMicros, cpuQuotaMicros, cpuShares } from "../../linux/cgroup-values.ts";
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

/** What a task needs as root in its own sandbox, less than Docker's own default: no device nodes, no raw sockets. */
const capabilities = [
  "AUDIT_WRITE",
  "CHOWN",
  "DAC_OVERRIDE",
  "FOWNER",
  "FSETID",
  "KILL",
  "NET_BIND_SERVICE",
  "SETFCAP",
  "SETGID",
  "SETPCAP",
  "SETUID",
  "SYS_CHROOT",
];

const maskedPaths = [
  "/proc/acpi",
  "/proc/asound",
  "/proc/interrupts",
  "/proc/kallsyms",
  "/proc/kcore",
  "/proc/keys",
  "/proc/kmsg",
  "/proc/kpagecgroup",
  "/proc/kpagecount",
  "/proc/kpageflags",
  "/proc/latency_stats",
  "/proc/sched_debug",
  "/proc/scsi",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/sys/devices/virtual/powercap",
  "/sys/firmware",
];

const readonlyPaths = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

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
    HostConfig: hostConfig(request.limits, options),
  };
}

function hostConfig(limits: Limits, options: ContainerOptions): HostConfig {
  return {
    ...resourceOptions(limits),
    NetworkMode: "none",
    CapDrop: ["ALL"],
    CapAdd: capabilities,
    SecurityOpt: ["no-new-privileges"],
    MaskedPaths: maskedPaths,
    ReadonlyPaths: readonlyPaths,
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
