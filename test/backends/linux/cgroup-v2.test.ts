import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { detectCgroups } from "../../../src/backends/linux/cgroup-hierarchy.ts";
import { CgroupV2 } from "../../../src/backends/linux/cgroup-v2.ts";

const files = {
  "cgroup.procs": "",
  "memory.current": "52428800\n",
  "memory.max": "max\n",
  "memory.swap.max": "max\n",
  "memory.stat": "anon 1\ninactive_file 10485760\nactive_file 5\n",
  "memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
  "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
  "cpu.weight": "100\n",
  "cpu.idle": "0\n",
  "cpu.max": "max 100000\n",
  "pids.current": "7\n",
  "pids.max": "max\n",
};

let mount: string;
let directory: string;
let cgroup: CgroupV2;

beforeEach(() => {
  mount = mkdtempSync(join(tmpdir(), "dsec-cgroup2-"));
  directory = join(mount, "dsec", "box");
  mkdirSync(directory, { recursive: true });
  for (const [name, content] of Object.entries(files)) writeFileSync(join(directory, name), content);
  cgroup = new CgroupV2("/dsec/box", mount);
});

afterEach(() => {
  rmSync(mount, { recursive: true });
});

const read = (name: string) => readFileSync(join(directory, name), "utf8").trim();

describe("the unified hierarchy, as a directory of plain files (a kernel with v1 controllers has no others to offer)", () => {
  test("usage comes from the files that the kernel documents", () => {
    expect(cgroup.usage()).toEqual({ memoryBytes: 41_943_040, cpuSeconds: 1.5, pids: 7, oomKills: 2 });
    expect(cgroup.oomKills()).toBe(2);
  });

  test("limits are written in its units, and swap is not usable", () => {
    cgroup.setLimits({
      memoryBytes: 67_108_864,
      cpus: 2,
      cpuLimit: 1.5,
      pids: 17,
      class: "latency-sensitive",
    });
    expect(read("memory.max")).toBe("67108864");
    expect(read("memory.swap.max")).toBe("0");
    expect(read("cpu.weight")).toBe("79");
    expect(read("cpu.idle")).toBe("0");
    expect(read("cpu.max")).toBe("150000 100000");
    expect(read("pids.max")).toBe("17");
    cgroup.setLimits({ cpuLimit: null });
    expect(read("cpu.max")).toBe("max 100000");
  });

  test("best-effort is idle where the kernel can, else of the least weight", () => {
    cgroup.setLimits({ cpus: 8, class: "best-effort" });
    expect(read("cpu.idle")).toBe("1");
    expect(read("cpu.weight")).toBe("100");
    rmSync(join(directory, "cpu.idle"));
    cgroup.setLimits({ cpus: 8, class: "best-effort" });
    expect(read("cpu.weight")).toBe("1");
  });

  test("a memory limit below what stays in use after reclaim is refused before anything is written", () => {
    writeFileSync(join(directory, "memory.reclaim"), "");
    const lower = () => cgroup.setLimits({ memoryBytes: 16_777_216, pids: 9 });
    expect(lower).toThrow(expect.objectContaining({ code: "EBUSY" }));
    expect(read("memory.reclaim")).toBe(String(52_428_800 - 16_777_216));
    expect(read("memory.max")).toBe("max");
    expect(read("pids.max")).toBe("max");
  });

  test("a refused write brings back what was written before it", () => {
    rmSync(join(directory, "pids.max"));
    expect(() => cgroup.setLimits({ memoryBytes: 67_108_864, pids: 9 })).toThrow(
      expect.objectContaining({ code: "ENOENT" }),
    );
    expect(read("memory.max")).toBe("max");
    expect(read("memory.swap.max")).toBe("max");
  });

  test("it is found by its mount when no v1 controller is mounted", () => {
    writeFileSync(join(mount, "cgroup.controllers"), "cpu memory pids\n");
    const entry = { root: "/", target: mount, type: "cgroup2", source: "cgroup2", superOptions: "rw" };
    const hierarchy = detectCgroups([entry]);
    expect(hierarchy.mode).toBe("unified");
    expect([...hierarchy.controllers]).toEqual(["cpu", "memory", "pids"]);
    expect(hierarchy.children("/dsec")).toEqual(["box"]);
    expect(hierarchy.cgroup("/dsec/box").oomKills()).toBe(2);
  });
});

test("a machine without control groups is named as such", () => {
  expect(() => detectCgroups([])).toThrow("no control groups are mounted");
});
