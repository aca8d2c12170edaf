import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";
import { fleetLeftovers, sandboxLeftovers } from "./leftovers.ts";

const count = 200;
const crashes = 5;

let fleet: Fleet;
let client: DSecClient;

beforeAll(async () => {
  fleet = await startFleet();
  client = await fleet.client();
});

afterAll(async () => {
  await client.close();
  await fleet[Symbol.asyncDispose]();
});

/** Runs `task` for each item, eight at once. */
async function eachOf<T, R>(items: readonly T[], task: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await task(item, index);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  return results;
}

test(
  `${count} sandboxes survive ${crashes} crashes of the daemon: none lost, none leaked, and all go away when removed`,
  { timeout: 280_000 },
  async () => {
    const made: Sandbox[] = await eachOf([...Array(count).keys()], async (index) => {
      const sandbox = await client.runContainer({ image: "busybox", memoryMb: 32, ttlRunningStop: 0 });
      await sandbox.runShell(`echo ${index} > /tmp/mine`);
      return sandbox;
    });
    const [first] = made;
    if (first === undefined) throw new Error("no sandbox was made");
    await first.runShell("mkfifo /tmp/go");
    const detached = await first.execDetached([
      "sh",
      "-c",
      "cat /tmp/mine; read -r line < /tmp/go; echo $line",
    ]);

    for (let crash = 0; crash < crashes; crash++) {
      await fleet.kill("SIGKILL");
      await fleet.restart();
      const states = await eachOf(made, async (sandbox) => (await sandbox.refresh()).state);
      expect(states.filter((state) => state !== "running")).toEqual([]);
      const contents = await eachOf(
        made,
        async (sandbox) => (await sandbox.exec(["cat", "/tmp/mine"])).stdout,
      );
      expect(contents).toEqual(made.map((_, index) => `${index}\n`));
    }
    const listed = await client.list();
    expect(listed.items.map(({ id }) => id).sort()).toEqual(made.map(({ id }) => id).sort());
    await first.runShell("echo gone on > /tmp/go");
    expect(await recorded(first, detached)).toBe("0\ngone on\n");

    await eachOf(made, async (sandbox) => sandbox.remove());
    expect((await client.list({ all: true })).items).toEqual([]);
    expect(await sandboxLeftovers(fleet)).toEqual([]);
  },
);

test("a sandbox killed while its daemon was away is reported lost, with the reason, and cleaned up", async () => {
  const sandbox = await client.runContainer({ image: "busybox", memoryMb: 32 });
  const { stdout } = await fleet.dsec(["inspect", sandbox.id]);
  expect(stdout).toContain(sandbox.id);
  await fleet.kill("SIGKILL");
  await killCgroup(fleet.instance, sandbox.id);
  await fleet.restart();
  const ended = await sandbox.wait({ timeoutMs: 30_000 });
  expect(ended).toMatchObject({ state: "lost", endReason: "agent_lost" });
  expect(ended.problem?.title).toBeTruthy();
  await sandbox.remove();
  expect(await sandboxLeftovers(fleet)).toEqual([]);
});

test("a deadline that passed while the daemon was away ends the sandbox at its return", async () => {
  const sandbox = await client.runContainer({ image: "busybox", memoryMb: 32, ttlRunningStop: 1 });
  await fleet.kill("SIGKILL");
  await fleet.restart();
  expect(await sandbox.wait({ timeoutMs: 30_000 })).toMatchObject({
    state: "stopped",
    endReason: "idle_ttl",
  });
});

test("dsec down leaves no mount, loop device, table, cgroup, process or directory", async () => {
  await using other = await startFleet();
  const second = await other.client();
  await eachOf([1, 2, 3], async () => second.runContainer({ image: "busybox", memoryMb: 32 }));
  await second.close();
  const { code, stderr } = await other.dsec(["down"]);
  expect({ code, stderr }).toMatchObject({ code: 0 });
  expect(await fleetLeftovers(other)).toEqual([]);
});

/** What a detached command wrote, from its start to its end. */
async function recorded(sandbox: Sandbox, exec: string): Promise<string> {
  let text = "";
  for await (const line of sandbox.logs({ exec, follow: true }))
    if (line.type === "output") text += Buffer.from(line.data, "base64").toString();
  return text;
}

async function killCgroup(instance: string, id: string): Promise<void> {
  for (const root of ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"]) {
    const text = await readFile(`${root}/${instance}/${id}/cgroup.procs`, "utf8").catch(() => "");
    for (const pid of text.split("\n")) if (pid !== "") process.kill(Number(pid), "SIGKILL");
    if (text !== "") return;
  }
  throw new Error(`no control group of ${id}`);
}
