import { readdir, readFile } from "node:fs/promises";
import type { Fleet } from "../e2e/fleet.ts";

/** Memory in bytes. */
export interface Sample {
  /** Milliseconds since the first. */
  readonly time: number;
  /** Resident memory of coordinator and daemon, which are one process here. */
  readonly fleetMemory: number;
  readonly fleetFiles: number;
  readonly agents: number;
  /** Of all agents together: what is their own, without the program's text, which all agents of the machine share. */
  readonly agentMemory: number;
  readonly agentFiles: number;
}

/** Where agents are found: the sandboxes' first processes. */
const agentName = "agent";

/** Looks at the fleet's process and its agents from outside. */
export async function takeSample(fleet: Fleet, time: number): Promise<Sample> {
  const agents = await agentsOf(fleet.instance);
  let agentMemory = 0;
  let agentFiles = 0;
  for (const pid of agents) {
    agentMemory += await kilobytes(`/proc/${pid}/smaps_rollup`, "Pss_Anon");
    agentFiles += await openFiles(pid);
  }
  return {
    time,
    fleetMemory: await kilobytes(`/proc/${fleet.pid}/status`, "VmRSS"),
    fleetFiles: await openFiles(fleet.pid),
    agents: agents.length,
    agentMemory,
    agentFiles,
  };
}

/** A process that ends meanwhile counts for nothing. */
async function kilobytes(file: string, field: string): Promise<number> {
  const text = await readFile(file, "utf8").catch(() => "");
  const [, value = "0"] = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(text) ?? [];
  return Number(value) * 1024;
}

async function openFiles(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`).catch(() => [])).length;
}

async function agentsOf(instance: string): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const name = await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "");
    if (name.trim() !== agentName) continue;
    const groups = await readFile(`/proc/${pid}/cgroup`, "utf8").catch(() => "");
    if (groups.includes(`/${instance}/`)) found.push(Number(pid));
  }
  return found;
}
