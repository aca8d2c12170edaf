import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Cgroup } from "../../../src/backends/linux/cgroup.ts";
import { detectCgroups } from "../../../src/backends/linux/cgroup-hierarchy.ts";
import { removeCgroup } from "../../../src/backends/linux/cgroup-removal.ts";
import { listMounts } from "../../../src/backends/linux/mount.ts";

const hierarchy = detectCgroups();
const isV1 = hierarchy.mode !== "unified";
const roots = listMounts()
  .filter((mount) => mount.type === "cgroup" || mount.type === "cgroup2")
  .map((mount) => mount.target);
const parent = `/dsec-test-${process.pid}`;
const mib = 1024 * 1024;
let cgroup: Cgroup;

beforeEach(() => {
  for (const root of roots) mkdirSync(join(root, parent, "box"), { recursive: true });
  cgroup = hierarchy.cgroup(`${parent}/box`);
});

afterEach(async () => {
  await removeCgroup(cgroup);
  for (const root of roots) rmdirSync(join(root, parent));
});

/** Runs a shell script whose processes are all in the group. */
function inside(script: string) {
  // A cpuset group takes no process before it was given CPUs.
  const files = roots
    .filter((root) => !root.includes("cpuset"))
    .map((root) => join(root, parent, "box", "cgroup.procs"));
  const join_ = files.map((file) => `echo $$ > ${file};`).join(" ");
  return spawn("sh", ["-c", `${join_} ${script}`], { stdio: ["ignore", "pipe", "inherit"] });
}

function read(controller: string, file: string): string {
  return readFileSync(join("/sys/fs/cgroup", controller, parent, "box", file), "utf8").trim();
}

test.runIf(isV1)("limits are written to the files of their controllers", () => {
  cgroup.setLimits({ memoryBytes: 64 * mib, cpus: 2, cpuLimit: 1.5, pids: 17, class: "latency-sensitive" });
  expect(read("memory", "memory.limit_in_bytes")).toBe(String(64 * mib));
  expect(read("memory", "memory.memsw.limit_in_bytes")).toBe(String(64 * mib));
  expect(read("memory", "memory.kmem.tcp.limit_in_bytes")).toBe(String(64 * mib));
  expect(read("cpu", "cpu.shares")).toBe("2048");
  expect(read("cpu", "cpu.cfs_quota_us")).toBe("150000");
  expect(read("pids", "pids.max")).toBe("17");
  for (const memoryBytes of [256 * mib, 32 * mib]) {
    cgroup.setLimits({ memoryBytes });
    expect(read("memory", "memory.memsw.limit_in_bytes")).toBe(String(memoryBytes));
  }
  cgroup.setLimits({ cpuLimit: null });
  expect(read("cpu", "cpu.cfs_quota_us")).toBe("-1");
});

test.runIf(isV1)(
  "a memory limit below what is in use is refused, and what was written before it is undone",
  async () => {
    cgroup.setLimits({ memoryBytes: 256 * mib, pids: 50 });
    const child = inside(
      `exec python3 -c 'import time; b = bytearray(${64 * mib}); print("ready", flush=True); time.sleep(600)'`,
    );
    await once(child.stdout, "data");
    expect(cgroup.usage().memoryBytes).toBeGreaterThan(64 * mib);
    expect(() => cgroup.setLimits({ memoryBytes: 16 * mib, pids: 60 })).toThrow(
      expect.objectContaining({ code: "EBUSY" }),
    );
    expect(read("memory", "memory.limit_in_bytes")).toBe(String(256 * mib));
    expect(read("memory", "memory.memsw.limit_in_bytes")).toBe(String(256 * mib));
    expect(read("pids", "pids.max")).toBe("50");
  },
);

test.runIf(isV1)("processes the kernel killed for memory are counted", async () => {
  cgroup.setLimits({ memoryBytes: 32 * mib });
  const child = inside(`exec python3 -c 'bytearray(${128 * mib})'`);
  const [, signal] = (await once(child, "exit")) as [number | null, string | null];
  expect(signal).toBe("SIGKILL");
  expect(cgroup.oomKills()).toBe(1);
  expect(cgroup.usage().oomKills).toBe(1);
});

test.runIf(isV1)("removal kills every process in every hierarchy and leaves no directory", async () => {
  const child = inside("sleep 600 & sleep 600 & echo ready; wait");
  await once(child.stdout, "data");
  expect(cgroup.processes()).toHaveLength(3);
  expect(cgroup.usage().pids).toBe(3);
  for (const root of roots) mkdirSync(join(root, parent, "box", "nested"), { recursive: true });
  writeFileSync(join(roots[0] ?? "", parent, "box", "nested", "cgroup.procs"), String(cgroup.processes()[2]));
  await removeCgroup(cgroup);
  expect(cgroup.processes()).toEqual([]);
  expect(roots.filter((root) => existsSync(join(root, parent, "box")))).toEqual([]);
  await removeCgroup(cgroup);
});

test.runIf(isV1)("groups below a path are listed, and there are none below a path that is not there", () => {
  expect(hierarchy.children(parent)).toEqual(["box"]);
  expect(hierarchy.children(`${parent}-none`)).toEqual([]);
  expect(hierarchy.cgroup(`${parent}-none/a`).oomKills()).toBe(0);
});
