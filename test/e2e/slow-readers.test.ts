import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { DSecClient, ExecProcess, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";

const readers = 200;
const sandboxes = 4;
const mib = 1_048_576;
/** More than all the buffers on the way hold together: the command cannot end while nobody reads. */
const lines = 300_000;
const expected = Buffer.from(Array.from({ length: lines }, (_, index) => `${index + 1}\n`).join(""));

let fleet: Fleet;
let client: DSecClient;
const made: Sandbox[] = [];

beforeAll(async () => {
  fleet = await startFleet();
  client = await fleet.client();
  for (let index = 0; index < sandboxes; index += 1)
    made.push(
      await client.runContainer({ image: "busybox", memoryMb: 256, pidsLimit: 256, ttlRunningStop: 0 }),
    );
});

afterAll(async () => {
  await client.close();
  await fleet[Symbol.asyncDispose]();
});

/** Resident bytes of a process. */
async function resident(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}

/** The sandboxes' agents, seen from outside: process 1 of each. */
async function agents(): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await readdir("/proc")) {
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
    const groups = await readFile(`/proc/${pid}/cgroup`, "utf8").catch(() => "");
    if (/^NSpid:.*\t1$/m.test(status) && groups.includes(`:/${fleet.instance}/`)) found.push(Number(pid));
  }
  return found;
}

/** Bytes that the commands have written to their pipes so far. */
async function written(): Promise<number> {
  const { stdout } = await promisify(execFile)("pgrep", ["-x", "seq"]).catch(() => ({ stdout: "" }));
  let bytes = 0;
  for (const pid of stdout.trim().split("\n")) {
    const groups = await readFile(`/proc/${pid}/cgroup`, "utf8").catch(() => "");
    if (!groups.includes(`:/${fleet.instance}/`)) continue;
    const io = await readFile(`/proc/${pid}/io`, "utf8").catch(() => "");
    bytes += Number(/^wchar: (\d+)/m.exec(io)?.[1] ?? 0);
  }
  return bytes;
}

test(
  `${readers} clients that do not read stop their commands within bounded memory, and then get every byte`,
  { timeout: 240_000 },
  async () => {
    const agentPids = await agents();
    expect(agentPids).toHaveLength(sandboxes);
    const before = { fleet: await resident(fleet.pid), agents: await Promise.all(agentPids.map(resident)) };
    const processes: ExecProcess[] = [];
    for (let index = 0; index < readers; index += 1) {
      const sandbox = made[index % sandboxes];
      if (sandbox !== undefined) processes.push(await sandbox.spawn(["seq", "1", String(lines)]));
    }
    // nothing moves any more
    let last = -1;
    await expect
      .poll(
        async () => {
          const now = await written();
          const stands = now === last;
          last = now;
          return stands;
        },
        { interval: 500, timeout: 60_000 },
      )
      .toBe(true);
    const onTheWay = last / readers;
    expect(onTheWay).toBeLessThan(expected.length);
    const stalled = { fleet: await resident(fleet.pid), agents: await Promise.all(agentPids.map(resident)) };
    const agentGrowth = Math.max(
      ...stalled.agents.map((bytes, index) => bytes - (before.agents[index] ?? 0)),
    );
    const figures = {
      perReaderOnTheWayKiB: Math.round(onTheWay / 1024),
      fleetGrowthMiB: Math.round((stalled.fleet - before.fleet) / mib),
      agentGrowthMiB: Math.round(agentGrowth / mib),
    };
    console.info(JSON.stringify(figures));
    // generously: the agent's window, twice (as read, and as sent), the streams' marks on the second hop, and what waits to be collected
    expect(stalled.fleet - before.fleet).toBeLessThan(readers * 2 * mib);
    expect(agentGrowth).toBeLessThan((readers / sandboxes) * 0.5 * mib);

    const wrong: number[] = [];
    await Promise.all(
      processes.map(async (process, index) => {
        let at = 0;
        for await (const chunk of process.stdout as AsyncIterable<Buffer>) {
          if (!chunk.equals(expected.subarray(at, at + chunk.length))) wrong.push(index);
          at += chunk.length;
        }
        const { exitCode, stdoutBytes } = await process.exit;
        if (exitCode !== 0 || at !== expected.length || stdoutBytes !== at) wrong.push(index);
      }),
    );
    expect(wrong).toEqual([]);
  },
);
