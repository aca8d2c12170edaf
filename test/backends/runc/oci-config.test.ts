import { constants } from "node:os";
import { expect, test } from "vitest";
import { type HostTraits, ociConfig } from "../../../src/backends/container/runc/oci-config.ts";
import { seccompProfile } from "../../../src/backends/container/runc/seccomp-profile.ts";
import { allowedSyscalls } from "../../../src/backends/container/runc/seccomp-syscalls.ts";
import type { CgroupLimits } from "../../../src/backends/linux/cgroup.ts";

const host: HostTraits = {
  cgroupMode: "unified",
  swapAccounting: true,
  canProtectFromOom: true,
  highestLimits: {
    RLIMIT_CORE: Infinity,
    RLIMIT_NOFILE: Infinity,
    RLIMIT_NPROC: Infinity,
    RLIMIT_SIGPENDING: Infinity,
  },
};
const limits: CgroupLimits = {
  memoryBytes: 1e8,
  cpus: 2,
  cpuLimit: null,
  pids: 9,
  class: "latency-sensitive",
};

interface Config {
  readonly process: {
    readonly oomScoreAdj?: number;
    readonly rlimits: readonly { type: string; soft: number; hard: number }[];
  };
  readonly linux: {
    readonly resources: { readonly memory: object; readonly cpu: object; readonly unified?: object };
  };
}

function config(hostTraits: Partial<HostTraits>, changed: Partial<CgroupLimits> = {}): Config {
  const text = ociConfig({
    hostname: "box",
    rootPath: "/root",
    agentBinary: "/agent",
    netnsPath: undefined,
    cgroupPath: "/dsec/x",
    limits: { ...limits, ...changed },
    host: { ...host, ...hostTraits },
  });
  return JSON.parse(text) as Config;
}

test("swap cannot be used beyond the memory limit, where the kernel can count it", () => {
  expect(config({}).linux.resources.memory).toEqual({ limit: 1e8, swap: 1e8 });
  expect(config({ swapAccounting: false }).linux.resources.memory).toEqual({ limit: 1e8 });
});

test("a best-effort sandbox is idle on the unified hierarchy and light on the others", () => {
  const idle = config({}, { class: "best-effort" }).linux.resources;
  expect(idle).toMatchObject({ cpu: { shares: 2 }, unified: { "cpu.idle": "1" } });
  expect(config({ cgroupMode: "hybrid" }, { class: "best-effort" }).linux.resources).not.toHaveProperty(
    "unified",
  );
  expect(config({}).linux.resources).not.toHaveProperty("unified");
});

test("a CPU ceiling is there only when it was asked for", () => {
  expect(config({}).linux.resources.cpu).toEqual({ shares: 2048 });
  expect(config({}, { cpuLimit: 0.5 }).linux.resources.cpu).toMatchObject({ quota: 50_000, period: 100_000 });
});

test("a daemon that may not raise limits asks for no more than it has", () => {
  const highestLimits = { ...host.highestLimits, RLIMIT_NOFILE: 512 };
  const { process } = config({ canProtectFromOom: false, highestLimits });
  expect(process).not.toHaveProperty("oomScoreAdj");
  expect(process.rlimits).toContainEqual({ type: "RLIMIT_NOFILE", soft: 512, hard: 512 });
  expect(config({}).process).toMatchObject({ oomScoreAdj: -999 });
});

test("the filter names no system call twice and none that was left out on purpose", () => {
  expect(new Set(allowedSyscalls).size).toBe(allowedSyscalls.length);
  const leftOut = [
    "mount",
    "unshare",
    "setns",
    "clone3",
    "bpf",
    "keyctl",
    "io_uring_setup",
    "io_setup",
    "userfaultfd",
    "open_by_handle_at",
  ];
  expect(allowedSyscalls.filter((name) => leftOut.includes(name))).toEqual([]);
});

test("asynchronous I/O, whose contexts all of the machine shares, is as if the kernel had none", () => {
  const rule = seccompProfile("x64").syscalls.find(({ names }) => names.includes("io_setup"));
  expect(rule).toMatchObject({ action: "SCMP_ACT_ERRNO", errnoRet: constants.errno.ENOSYS });
});

test("the filter is for 64-bit calls of the machine it runs on", () => {
  expect(seccompProfile("x64").architectures).toEqual(["SCMP_ARCH_X86_64"]);
  expect(seccompProfile("arm64").architectures).toEqual(["SCMP_ARCH_AARCH64"]);
  expect(() => seccompProfile("mips")).toThrow(RangeError);
});
