import { type ChildProcess, execFileSync } from "node:child_process";
import { createHash, randomBytes, randomFillSync } from "node:crypto";
import { once } from "node:events";
import { closeSync, createReadStream, mkdtempSync, openSync, readdirSync, readFileSync } from "node:fs";
import { rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { growthOf, memoryOf } from "../bench/support/process-memory.ts";
import { freshNetworkRange } from "../setup/network-range.ts";
import {
  type CommandResult,
  type Fleet,
  machineLayerStore,
  runDsec,
  spawnDsec,
  startFleet,
} from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";

const mebibyte = 1_048_576;
const fileMebibytes = 256;

let fleet: Fleet;
let id: string;
const dir = mkdtempSync(join(tmpdir(), "dsec-cp-memory-"));

beforeAll(async () => {
  fleet = await startFleet();
  const limits = ["--memory", "64m", "--disk", "1g"];
  const made = await fleet.dsec(["run", "-q", ...limits, ...sandboxFlags]);
  if (made.code !== 0) throw new Error(made.stderr);
  id = made.stdout.trim();
  const chunk = Buffer.alloc(16 * mebibyte);
  const file = openSync(join(dir, "big"), "w");
  for (let at = 0; at < fileMebibytes; at += 16) writeSync(file, randomFillSync(chunk));
  closeSync(file);
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

function agentPid(): number {
  const pid = readdirSync("/proc").find((entry) => {
    try {
      return /^\d+$/.test(entry) && readFileSync(`/proc/${entry}/cgroup`, "utf8").includes(id);
    } catch {
      return false;
    }
  });
  return Number(pid);
}

type Dsec = (argv: readonly string[]) => Promise<CommandResult>;

const here: Dsec = async (argv) => fleet.dsec(argv);

async function sha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

async function cp(dsec: Dsec, ...argv: string[]): Promise<void> {
  const { code, stderr } = await dsec(["cp", "-q", ...argv]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
}

test("a file of 256 MiB goes both ways through a sandbox of 64 MiB in bounded memory on every hop", async () => {
  await cp(here, "/etc/hostname", `${id}:/warm`);
  const up = await growthOf(fleet.pid, async () => cp(here, join(dir, "big"), `${id}:/big`));
  const down = await growthOf(fleet.pid, async () => cp(here, `${id}:/big`, join(dir, "back")));
  expect(await sha256(join(dir, "back"))).toBe(await sha256(join(dir, "big")));
  // V8 lets garbage buffers lie for a while, but not in proportion to the file
  expect(up).toBeLessThan(200);
  expect(down).toBeLessThan(200);
  expect(memoryOf(agentPid(), "VmRSS")).toBeLessThan(8);
});

test("a directory that is piped from one sandbox into another never lies anywhere as a whole", async () => {
  const other = (await fleet.dsec(["run", "-q", "--disk", "1g", ...sandboxFlags])).stdout.trim();
  const command = (argv: string): string => `"${process.execPath}" dist/bin/dsec.js ${argv}`;
  const peak = await growthOf(fleet.pid, async () => {
    execFileSync("sh", ["-c", `${command(`cp -q ${id}:/big -`)} | ${command(`cp -q - ${other}:/`)}`], {
      env: { ...process.env, ...fleet.env },
    });
  });
  expect(peak).toBeLessThan(300);
  const sum = await fleet.dsec(["exec", other, "--", "sha256sum", "/big"]);
  expect(sum.stdout.split(" ")[0]).toBe(await sha256(join(dir, "big")));
});

/** Resolves with a process of the built program when it has said so on stderr. */
async function started(argv: string[], env: Record<string, string>, words: string): Promise<ChildProcess> {
  const child = spawnDsec(argv, env);
  let said = "";
  for await (const chunk of child.stderr?.iterator({ destroyOnReturn: false }) ?? []) {
    said += String(chunk);
    if (said.includes(words)) break;
  }
  if (!said.includes(words)) throw new Error(`dsec ${argv.join(" ")} ended: ${said}`);
  child.stderr?.resume();
  return child;
}

test("memory is bounded also where coordinator and daemon are processes of their own", async () => {
  const home = mkdtempSync("/tmp/dsec-two-");
  const env = {
    DSEC_DATA_DIR: join(home, "data"),
    DSEC_RUN_DIR: join(home, "run"),
    DSEC_INSTANCE: `t${randomBytes(4).toString("hex")}`,
    DSEC_CONFIG: join(home, "config.yaml"),
  };
  const dsec: Dsec = async (argv) => runDsec(argv, env);
  const coordinator = await started(["coordinator"], env, "the coordinator listens");
  const address = `unix:${join(home, "run", "coordinator.sock")}`;
  const store = ["--layer-store", machineLayerStore, "--network-range", freshNetworkRange()];
  const daemon = await started(["daemon", "--coordinator", address, ...store], env, "registered");
  const made = await dsec(["run", "-q", "--memory", "64m", "--disk", "1g", ...sandboxFlags]);
  expect(made.stderr).toBe("");
  const there = made.stdout.trim();
  const growth = async (...argv: string[]): Promise<[coordinator: number, daemon: number]> => {
    let inner = 0;
    const outer = await growthOf(coordinator.pid ?? 0, async () => {
      inner = await growthOf(daemon.pid ?? 0, async () => cp(dsec, ...argv));
    });
    return [outer, inner];
  };
  await cp(dsec, "/etc/hostname", `${there}:/warm`);
  const up = await growth(join(dir, "big"), `${there}:/big`);
  const down = await growth(`${there}:/big`, join(dir, "back"));
  expect(await sha256(join(dir, "back"))).toBe(await sha256(join(dir, "big")));
  for (const mebibytes of [...up, ...down]) expect(mebibytes).toBeLessThan(200);
  await dsec(["rm", there]);
  for (const running of [daemon, coordinator]) {
    const ended = once(running, "exit");
    running.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  }
  rmSync(home, { recursive: true });
});
