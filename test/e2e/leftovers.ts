/** What a fleet has on the machine, seen from outside: the tests' own eyes, not the daemon's. */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Fleet } from "./fleet.ts";

const run = promisify(execFile);
const cgroupRoot = "/sys/fs/cgroup";

/** What belongs to single sandboxes; must be empty when there are none, while the fleet goes on. */
export async function sandboxLeftovers(fleet: Fleet): Promise<string[]> {
  const found: string[] = [];
  for (const group of await cgroupsOf(fleet.instance)) found.push(`cgroup ${group}`);
  for (const folder of ["sandboxes", "scratch"])
    for (const entry of await entries(join(fleet.runDir, folder))) found.push(`${folder}/${entry}`);
  for (const mount of await mountsBelow(join(fleet.runDir, "sandboxes/"))) found.push(`mount ${mount}`);
  for (const pid of await processesOf(fleet.instance)) found.push(`process ${pid}`);
  for (const id of await containersOf(fleet.instance)) found.push(`docker container ${id}`);
  return found;
}

/** What belongs to the fleet as a whole; must be empty after `dsec down`. */
export async function fleetLeftovers(fleet: Fleet): Promise<string[]> {
  const found = await sandboxLeftovers(fleet);
  for (const mount of await mountsBelow(fleet.runDir)) found.push(`mount ${mount}`);
  const loops = await run("losetup", ["--list", "--noheadings", "--output", "BACK-FILE"]);
  for (const file of loops.stdout.split("\n"))
    if (file.trim().startsWith(fleet.dataDir)) found.push(`loop device on ${file.trim()}`);
  const tables = await run("nft", ["list", "tables"]);
  if (tables.stdout.split("\n").some((line) => line.endsWith(` ${fleet.instance}`)))
    found.push("nftables table");
  return found;
}

/** The sandboxes' control groups, over all hierarchies, without duplicates. */
async function cgroupsOf(instance: string): Promise<Set<string>> {
  const groups = new Set<string>();
  for (const hierarchy of await entries(cgroupRoot))
    for (const entry of await readdir(join(cgroupRoot, hierarchy, instance), { withFileTypes: true }).catch(
      () => [],
    ))
      if (entry.isDirectory()) groups.add(entry.name);
  return groups;
}

async function processesOf(instance: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of await entries("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const groups = await readFile(`/proc/${pid}/cgroup`, "utf8").catch(() => "");
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
    // one that has died is the machine's init to reap, whenever that gets to it: no status is one reaped just now
    if (groups.includes(`:/${instance}/`) && /^State:\s+[^ZX]/m.test(status)) found.push(pid);
  }
  return found;
}

async function containersOf(instance: string): Promise<string[]> {
  const socketPath = process.env["DSEC_TEST_DOCKER_SOCKET"];
  if (socketPath === undefined) return [];
  const { default: Docker } = await import("dockerode");
  const filters = { label: [`dsec.instance=${instance}`] };
  const containers = await new Docker({ socketPath }).listContainers({ all: true, filters });
  return containers.map(({ Id }) => Id);
}

async function mountsBelow(path: string): Promise<string[]> {
  const table = await readFile("/proc/self/mountinfo", "utf8");
  return table.split("\n").flatMap((line) => {
    const point = line.split(" ")[4];
    return point?.startsWith(path) ? [point] : [];
  });
}

async function entries(path: string): Promise<string[]> {
  return readdir(path).catch(() => []);
}
