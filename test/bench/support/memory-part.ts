/** 2 GiB both ways through a sandbox that has far less memory: what it takes on each hop. */
import { execFileSync, spawn } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dsecProgram, type Fleet } from "../../e2e/fleet.ts";
import { agentsOf } from "./files-part.ts";
import { growthOf, memoryOf, resetPeak } from "./process-memory.ts";
import { fixed, type Report } from "./report.ts";

const gibibytes = 2;
const memoryMb = 64;
const lookMs = 50;

/** Adds the table to a report. */
export async function benchMemory(report: Report, fleet: Fleet): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "dsec-bench-memory-"));
  const limits = ["--disk", "4g", "--memory", `${memoryMb}m`, "--engine", "runc"];
  const made = await fleet.dsec(["run", "-q", ...limits, "busybox"]);
  if (made.code !== 0) throw new Error(made.stderr);
  const id = made.stdout.trim();
  try {
    plant(join(dir, "big"));
    const rows: string[][] = [];
    for (const [name, from, to] of [
      ["up", join(dir, "big"), `${id}:/big`],
      ["down", `${id}:/big`, join(dir, "back")],
    ] as const) {
      const [agent = 0] = agentsOf(id);
      resetPeak(agent);
      let client = 0;
      const began = performance.now();
      const growth = await growthOf(fleet.pid, async () => {
        client = await copy(fleet, from, to);
      });
      const seconds = (performance.now() - began) / 1000;
      rows.push([name, seconds, client, growth, memoryOf(agent, "VmHWM")].map(text));
    }
    execFileSync("cmp", [join(dir, "big"), join(dir, "back")]);
    report.table(
      `${gibibytes} GiB in one file through a sandbox of ${memoryMb} MiB: memory at its most, MiB`,
      ["", "seconds", "dsec cp, all of it", "coordinator and daemon, growth", "agent, all of it"],
      rows,
    );
  } finally {
    rmSync(dir, { recursive: true, force: true });
    await fleet.dsec(["rm", id]);
  }
}

function text(value: string | number): string {
  return typeof value === "string" ? value : fixed(value);
}

/** Resolves with the most memory that the command line had, MiB. */
async function copy(fleet: Fleet, from: string, to: string): Promise<number> {
  const child = spawn(process.execPath, [dsecProgram, "cp", "-q", from, to], {
    env: { ...process.env, ...fleet.env },
    stdio: ["ignore", "ignore", "inherit"],
  });
  let peak = 0;
  const looking = setInterval(() => {
    // a process that has just ended has none
    peak = Math.max(peak, memoryOf(child.pid ?? 0, "VmHWM") || 0);
  }, lookMs);
  const [code] = (await once(child, "exit")) as [number];
  clearInterval(looking);
  if (code !== 0) throw new Error(`dsec cp ${from} ${to} answered ${code}`);
  return peak;
}

function plant(path: string): void {
  const chunk = Buffer.alloc(2 ** 24);
  const file = openSync(path, "w");
  for (let at = 0; at < gibibytes * 2 ** 30; at += chunk.length) writeSync(file, randomFillSync(chunk));
  closeSync(file);
}
