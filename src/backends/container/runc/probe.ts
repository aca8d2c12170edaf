/** Whether containers work on this machine, and what mends it where they do not. */
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { promisify } from "node:util";
import { agentBinaryPath } from "../../../agent/agent-binary.ts";
import type { BackendReport } from "../../../protocol/node.ts";
import { Capability, hasCapability } from "../../linux/capability.ts";
import type { CgroupHierarchy } from "../../linux/cgroup.ts";
import { detectCgroups } from "../../linux/cgroup-hierarchy.ts";
import { findRuntime } from "./host.ts";
import { kernelLimitFindings } from "./kernel-limits.ts";
import type { RuntimeName } from "./runtime.ts";
import { seccompProfile } from "./seccomp-profile.ts";

type Finding = BackendReport["findings"][number];

const run = promisify(execFile);
const neededControllers = ["cpu", "memory", "pids"] as const;
const installRuntime = "apt-get install -y runc";
const versionDeadlineMs = 10_000;

/** Never throws. */
export async function probeHost(
  runtimes: readonly RuntimeName[],
  signal: AbortSignal,
): Promise<BackendReport> {
  if (process.platform !== "linux") {
    const message = `containers need Linux, this is ${process.platform}`;
    return report([{ level: "error", message }]);
  }
  const cgroups = detect();
  const findings = [
    ...privileges(),
    ...kernel(),
    ...kernelLimitFindings(),
    ...controlGroups(cgroups),
    ...agent(),
  ];
  const runtime = findRuntime(typeof cgroups === "string" ? "hybrid" : cgroups.mode, runtimes);
  if (runtime === undefined)
    return report([
      ...findings,
      { level: "error", message: `${runtimes.join(" or ")} is not installed`, fix: installRuntime },
    ]);
  try {
    const { stdout } = await run(runtime.program, ["--version"], { signal, timeout: versionDeadlineMs });
    return report([...findings, ...runtimeFindings(runtime.name, stdout)], versionOf(runtime.name, stdout));
  } catch (error) {
    const message = `${runtime.program} does not run: ${error instanceof Error ? error.message : String(error)}`;
    return report([...findings, { level: "error", message, fix: installRuntime }]);
  }
}

function report(findings: readonly Finding[], version?: string): BackendReport {
  return {
    backend: "container",
    engine: "runc",
    works: findings.every((finding) => finding.level !== "error"),
    ...(version !== undefined && { version }),
    findings: [...findings],
  };
}

function detect(): CgroupHierarchy | string {
  try {
    return detectCgroups();
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function privileges(): Finding[] {
  if (process.geteuid?.() !== 0)
    return [{ level: "error", message: "containers need root", fix: "sudo dsec up" }];
  if (!hasCapability(Capability.sysAdmin))
    return [
      {
        level: "error",
        message: "root here may not mount (no CAP_SYS_ADMIN): run dsec outside of a container",
      },
    ];
  if (!hasCapability(Capability.sysResource)) {
    const message =
      "root here has no CAP_SYS_RESOURCE: a sandbox can have its own agent killed for memory, and limits of open files are not raised";
    return [{ level: "warning", message }];
  }
  return [];
}

function kernel(): Finding[] {
  const findings: Finding[] = [];
  if (!existsSync("/proc/sys/kernel/seccomp/actions_avail"))
    findings.push({
      level: "error",
      message: "the kernel has no system call filters (CONFIG_SECCOMP_FILTER)",
    });
  const fileSystems = readFileSync("/proc/filesystems", "utf8");
  for (const name of ["overlay", "erofs"]) {
    if (!new RegExp(String.raw`\t${name}$`, "m").test(fileSystems))
      findings.push({
        level: "error",
        message: `the kernel has no ${name} file system`,
        fix: `modprobe ${name}`,
      });
  }
  try {
    seccompProfile();
  } catch (error) {
    findings.push({ level: "error", message: error instanceof Error ? error.message : String(error) });
  }
  return findings;
}

function controlGroups(cgroups: CgroupHierarchy | string): Finding[] {
  if (typeof cgroups === "string") {
    const fix = "mount -t cgroup2 cgroup2 /sys/fs/cgroup";
    return [{ level: "error", message: cgroups, fix }];
  }
  const findings: Finding[] = [{ level: "info", message: `control groups: ${cgroups.mode}` }];
  for (const controller of neededControllers) {
    if (cgroups.controllers.has(controller)) continue;
    const message = `the ${controller} controller is not available`;
    const fix = `mkdir -p /sys/fs/cgroup/${controller} && mount -t cgroup -o ${controller} cgroup /sys/fs/cgroup/${controller}`;
    findings.push({ level: "error", message, ...(cgroups.mode !== "unified" && { fix }) });
  }
  // A kernel without swap has no such file.
  const swaps =
    existsSync("/proc/swaps") && readFileSync("/proc/swaps", "utf8").trim().split("\n").length > 1;
  if (swaps && !cgroups.swapAccounting) {
    const message = "swap is on but not accounted: sandboxes can use swap beyond their memory limit";
    findings.push({ level: "warning", message, fix: "boot with swapaccount=1, or swapoff -a" });
  }
  return findings;
}

function agent(): Finding[] {
  const path = agentBinaryPath();
  return existsSync(path)
    ? []
    : [{ level: "error", message: `there is no agent at ${path}`, fix: "npm run build" }];
}

function runtimeFindings(name: string, versionText: string): Finding[] {
  if (/seccomp/i.test(versionText)) return [];
  const message = `${name} was built without system call filters`;
  return [{ level: "error", message, fix: installRuntime }];
}

/** E.g. `runc 1.1.5+ds1`. */
function versionOf(name: string, versionText: string): string {
  return `${name} ${/version\s+(\S+)/.exec(versionText)?.[1] ?? "of unknown version"}`;
}
