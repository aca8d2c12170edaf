/** 1 GiB up and down by both command lines, and a tree of small files: time against docker cp, and CPU. */
import { execFileSync, spawn } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { once } from "node:events";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Fleet, dsecProgram } from "../../e2e/fleet.ts";
import type { DockerPeer } from "./docker-peer.ts";
import { quantile } from "./measure.ts";
import { cpuSeconds } from "./process-cpu.ts";
import { fixed, type Report, times } from "./report.ts";

const gibibyte = 2 ** 30;
const rounds = 3;
const smallFiles = 5000;

interface Run {
  readonly seconds: number;
  readonly cpu: number;
}

/** One command line to its end; `others` are the servers that work for it. */
async function run(
  command: string,
  argv: readonly string[],
  env: NodeJS.ProcessEnv,
  others: (pid: number, command: string) => boolean,
): Promise<Run> {
  const cpuBefore = cpuSeconds(others);
  const began = performance.now();
  // a shell times the command itself
  const shell = ["-c", 'TIMEFORMAT="%U %S"; time "$@" >&2', "time", command, ...argv];
  const child = spawn("bash", shell, { env, stdio: ["ignore", "ignore", "pipe"] });
  const stderr: Buffer[] = [];
  child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  const [code] = (await once(child, "close")) as [number];
  const seconds = (performance.now() - began) / 1000;
  const text = Buffer.concat(stderr).toString();
  if (code !== 0) throw new Error(`${command} ${argv.join(" ")} failed: ${text}`);
  const [user = 0, system = 0] = (text.trim().split("\n").at(-1) ?? "").split(" ").map(Number);
  return { seconds, cpu: user + system + cpuSeconds(others) - cpuBefore };
}

const median = (runs: readonly Run[], value: (run: Run) => number): number => quantile(runs.map(value), 0.5);

/** Adds the tables of files to a report. The fleet has the engine runc; the peer is docker's own command line. */
export async function benchFiles(report: Report, fleet: Fleet, docker: DockerPeer): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "dsec-bench-files-"));
  const made = await fleet.dsec([
    "run",
    "-q",
    "--disk",
    "8g",
    "--memory",
    "512m",
    "--engine",
    "runc",
    "busybox",
  ]);
  const id = made.stdout.trim();
  if (made.code !== 0) throw new Error(made.stderr);
  const container = await docker.run();
  try {
    plant(dir);
    const agents = agentsOf(id);
    const ours = (pid: number): boolean => pid === fleet.pid || agents.has(pid);
    const theirs = (_pid: number, command: string): boolean => /^(dockerd|containerd)/.test(command);
    const env = { ...process.env, ...fleet.env };
    const dsec = async (...argv: string[]): Promise<Run> =>
      run(process.execPath, [dsecProgram, "cp", "-q", ...argv], env, ours);
    const peer = async (...argv: string[]): Promise<Run> =>
      run("docker", ["cp", "-q", ...argv], docker.env, theirs);
    const kinds = [
      ["1 GiB up", `${dir}/big`, "HERE:/big", 1],
      ["1 GiB down", "HERE:/big", `${dir}/back`, 1],
      [`${smallFiles} files of 4 KiB up`, `${dir}/tree`, "HERE:/tree", 0],
      [`${smallFiles} files of 4 KiB down`, "HERE:/tree", `${dir}/tree-back`, 0],
    ] as const;
    const rows: string[][] = [];
    for (const [name, from, to, gibibytes] of kinds) {
      const mine: Run[] = [];
      const others: Run[] = [];
      // by turns, so that whatever else the machine does meets both
      for (let round = 0; round < rounds; round++) {
        for (const [runs, copy, target] of [
          [mine, dsec, id],
          [others, peer, container],
        ] as const) {
          rmSync(`${dir}/back`, { force: true });
          rmSync(`${dir}/tree-back`, { recursive: true, force: true });
          const side = (path: string): string => path.replace("HERE", target);
          runs.push(await copy(side(from), side(to)));
          if (gibibytes > 0 && !to.startsWith("HERE") && statSync(`${dir}/back`).size !== gibibyte)
            throw new Error("not all of it came back");
        }
      }
      const seconds = median(mine, (each) => each.seconds);
      const cpu = median(mine, (each) => each.cpu);
      const dockerSeconds = median(others, (each) => each.seconds);
      const dockerCpu = median(others, (each) => each.cpu);
      rows.push([
        name,
        fixed(seconds, 2),
        fixed(cpu, 2),
        fixed(dockerSeconds, 2),
        fixed(dockerCpu, 2),
        times(dockerSeconds / seconds),
      ]);
    }
    report.table(
      `Files: dsec cp against docker cp, median of ${rounds}`,
      ["", "dsec s", "dsec CPU s (all processes)", "docker s", "docker CPU s", "docker's time ÷ ours"],
      rows,
    );
  } finally {
    rmSync(dir, { recursive: true, force: true });
    await fleet.dsec(["rm", id]);
    await docker.remove([container]);
  }
}

/** What runs in a sandbox that has nothing to do: its agent. */
export function agentsOf(id: string): ReadonlySet<number> {
  const found = new Set<number>();
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      if (readFileSync(`/proc/${entry}/cgroup`, "utf8").includes(id)) found.add(Number(entry));
    } catch {
      // it has ended meanwhile
    }
  }
  return found;
}

function plant(dir: string): void {
  const chunk = Buffer.alloc(2 ** 24);
  const file = openSync(`${dir}/big`, "w");
  for (let at = 0; at < gibibyte; at += chunk.length) writeSync(file, randomFillSync(chunk));
  closeSync(file);
  execFileSync("sync", ["-f", dir]);
  for (let folder = 0; folder < 50; folder++) {
    mkdirSync(`${dir}/tree/${folder}`, { recursive: true });
    for (let index = 0; index < smallFiles / 50; index++)
      writeFileSync(`${dir}/tree/${folder}/${index}`, chunk.subarray(0, 4096));
  }
}
