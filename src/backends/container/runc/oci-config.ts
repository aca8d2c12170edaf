/** The config.json of a sandbox's OCI bundle. */
import type { CgroupLimits } from "../../linux/cgroup.ts";
import { cpuPeriodMicros, cpuQuotaMicros, cpuShares } from "../../linux/cgroup-values.ts";
import type { ResourceLimitName } from "../../linux/resource-limits.ts";
import { grantedCapabilities } from "./capabilities.ts";
import { maskedPaths, readOnlyPaths } from "./hidden-paths.ts";
import { seccompProfile } from "./seccomp-profile.ts";

/**
 * Where the agent's binary appears inside: in /dev, a file system of the sandbox's own, so that the mount point does not show
 * up among the files that the sandbox has written.
 */
const agentPath = "/dev/.dsec/agent";

/** Descriptor of the listening socket: the first that the runtime passes on. */
const agentSocketFd = 3;

/**
 * The agent goes last when memory runs out, and what it starts (at 500) cannot change that. -1000 would leave the kernel nobody
 * to kill in a sandbox that only holds the agent.
 */
const agentOomScoreAdj = -999;

/** Of ttys that one sandbox may open at once: the kernel has 4,096 for the whole machine. */
const maxTerminals = 256;

export interface SandboxConfig {
  readonly hostname: string;
  readonly rootPath: string;
  /** Of the agent, on the host. */
  readonly agentBinary: string;
  /** Path of the network namespace; a new, empty one without it. */
  readonly netnsPath: string | undefined;
  /** Below the cgroup hierarchies' roots; undefined where the runtime starts in the groups it is to live in. */
  readonly cgroupPath: string | undefined;
  readonly limits: CgroupLimits;
  readonly host: HostTraits;
}

/** What of the machine decides about a bundle. */
export interface HostTraits {
  readonly cgroupMode: "unified" | "hybrid" | "legacy";
  readonly swapAccounting: boolean;
  /** Whether the daemon may lower a process's oom_score_adj: CAP_SYS_RESOURCE, which containers often lack. */
  readonly canProtectFromOom: boolean;
  /** What the daemon may hand down. */
  readonly highestLimits: Readonly<Record<ResourceLimitName, number>>;
}

function memory(config: SandboxConfig) {
  const limit = config.limits.memoryBytes;
  // The OCI's `swap` is memory and swap together.
  return config.host.swapAccounting ? { limit, swap: limit } : { limit };
}

function cpu({ limits }: SandboxConfig) {
  const quota = cpuQuotaMicros(limits.cpuLimit);
  return { shares: cpuShares(limits), ...(quota !== undefined && { quota, period: cpuPeriodMicros }) };
}

function mounts(config: SandboxConfig) {
  const shmBytes = Math.floor(config.limits.memoryBytes / 2);
  return [
    { destination: "/proc", type: "proc", source: "proc", options: ["nosuid", "noexec", "nodev"] },
    {
      destination: "/dev",
      type: "tmpfs",
      source: "tmpfs",
      options: ["nosuid", "noexec", "strictatime", "mode=755", "size=64m"],
    },
    {
      destination: "/dev/pts",
      type: "devpts",
      source: "devpts",
      options: [
        "nosuid",
        "noexec",
        "newinstance",
        "ptmxmode=0666",
        "mode=0620",
        "gid=5",
        `max=${maxTerminals}`,
      ],
    },
    {
      destination: "/dev/shm",
      type: "tmpfs",
      source: "shm",
      options: ["nosuid", "noexec", "nodev", "mode=1777", `size=${shmBytes}`],
    },
    { destination: "/sys", type: "sysfs", source: "sysfs", options: ["nosuid", "noexec", "nodev", "ro"] },
    {
      destination: agentPath,
      type: "bind",
      source: config.agentBinary,
      options: ["bind", "ro", "nosuid", "nodev"],
    },
  ];
}

function resources(config: SandboxConfig) {
  const idle = config.host.cgroupMode === "unified" && config.limits.class === "best-effort";
  return {
    // Runtimes add the few devices that every container has.
    devices: [{ allow: false, access: "rwm" }],
    memory: memory(config),
    cpu: cpu(config),
    pids: { limit: config.limits.pids },
    ...(idle && { unified: { "cpu.idle": "1" } }),
  };
}

const manyProcesses = 4_194_304;

/** Limits of the kernel that count per user over the whole machine are raised out of the way: the cgroup counts per sandbox. */
const wantedLimits: readonly {
  readonly type: ResourceLimitName;
  readonly soft: number;
  readonly hard: number;
}[] = [
  { type: "RLIMIT_NOFILE", soft: 1024, hard: 524_288 },
  { type: "RLIMIT_NPROC", soft: manyProcesses, hard: manyProcesses },
  { type: "RLIMIT_SIGPENDING", soft: manyProcesses, hard: manyProcesses },
  // One byte: neither a file nor, unlike with 0, the machine's core dump handler.
  { type: "RLIMIT_CORE", soft: 1, hard: 1 },
];

function rlimits({ host }: SandboxConfig) {
  return wantedLimits.map(({ type, soft, hard }) => {
    const most = host.highestLimits[type];
    return { type, soft: Math.min(soft, most), hard: Math.min(hard, most) };
  });
}

/** The bundle's config.json as JSON. */
export function ociConfig(config: SandboxConfig): string {
  return JSON.stringify({
    ociVersion: "1.0.2",
    hostname: config.hostname,
    root: { path: config.rootPath, readonly: false },
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: [agentPath, "--listen-fd", String(agentSocketFd)],
      env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
      cwd: "/",
      capabilities: {
        bounding: grantedCapabilities,
        effective: grantedCapabilities,
        permitted: grantedCapabilities,
      },
      rlimits: rlimits(config),
      noNewPrivileges: true,
      ...(config.host.canProtectFromOom && { oomScoreAdj: agentOomScoreAdj }),
    },
    mounts: mounts(config),
    linux: {
      namespaces: [
        { type: "pid" },
        { type: "mount" },
        { type: "ipc" },
        { type: "uts" },
        { type: "cgroup" },
        { type: "network", ...(config.netnsPath !== undefined && { path: config.netnsPath }) },
      ],
      ...(config.cgroupPath !== undefined && {
        cgroupsPath: config.cgroupPath,
        resources: resources(config),
      }),
      maskedPaths,
      readonlyPaths: readOnlyPaths,
      seccomp: profile(),
    },
  });
}

let memoizedProfile: ReturnType<typeof seccompProfile> | undefined;

function profile() {
  memoizedProfile ??= seccompProfile();
  return memoizedProfile;
}
