import { randomInt } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { vi } from "vitest";
import { listMounts } from "../../src/backends/linux/mount.ts";

/** An argument that no other process has: a number of seconds, so that `sleep` takes it. */
export function uniqueMark(): string {
  return `${randomInt(100_000, 1_000_000)}.${randomInt(1000, 10_000)}`;
}

/** Processes of this machine whose arguments contain `argument`, by process id. */
export function processesWith(argument: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => argumentsOf(pid).includes(argument));
}

/** The process with that argument, once it is there. */
export async function processWith(argument: string): Promise<number> {
  let found: number[] = [];
  await vi.waitUntil(() => (found = processesWith(argument)).length > 0, { timeout: 10_000, interval: 10 });
  return found[0] ?? 0;
}

/** Returns once no process has that argument. */
export async function noProcessWith(argument: string): Promise<void> {
  await vi.waitUntil(() => processesWith(argument).length === 0, { timeout: 10_000, interval: 10 });
}

/** The control group that a process is in, by either version of the interface. */
export function cgroupDirectory(pid: number, controller: string): string {
  const lines = readFileSync(`/proc/${pid}/cgroup`, "utf8").split("\n");
  const pathOf = (name: string): string | undefined =>
    lines.find((line) => line.split(":")[1]?.split(",").includes(name))?.replace(/^\d+:[^:]*:/, "");
  const own = pathOf(controller);
  const mount = listMounts().find(({ type, superOptions }) =>
    own === undefined
      ? type === "cgroup2"
      : type === "cgroup" && superOptions.split(",").includes(controller),
  );
  return join(mount?.target ?? "", own ?? pathOf("") ?? "");
}

/** The first process of the process id namespace that `pid` is in: a sandbox's agent. */
export function firstProcessAround(pid: number): number {
  for (let at = pid; at > 1; at = parentOf(at)) {
    if (/^NSpid:.*\t1$/m.test(readFileSync(`/proc/${at}/status`, "utf8"))) return at;
  }
  throw new Error(`process ${pid} is in no namespace of its own`);
}

function argumentsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}

function parentOf(pid: number): number {
  const parent = /^PPid:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(parent);
}
