import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import {
  identifyProcess,
  isAlive,
  parseProcessStat,
  signalProcess,
} from "../../../src/backends/linux/process.ts";

const SIGKILL = 9;

async function sleeper() {
  const child = spawn("sleep", ["600"], { stdio: "ignore" });
  await once(child, "spawn");
  const identity = identifyProcess(child.pid ?? -1);
  if (identity === undefined) throw new Error("the process is gone");
  return { child, identity };
}

test("a process is alive until it is killed through its pidfd", async () => {
  const { child, identity } = await sleeper();
  expect(isAlive(identity)).toBe(true);
  expect(signalProcess(identity, SIGKILL)).toBe(true);
  await once(child, "exit");
  expect(isAlive(identity)).toBe(false);
  expect(signalProcess(identity, SIGKILL)).toBe(false);
});

test("another process under the same id is neither taken for it nor hit", async () => {
  const { child, identity } = await sleeper();
  const earlier = { ...identity, startTime: identity.startTime - 1 };
  expect(isAlive(earlier)).toBe(false);
  expect(signalProcess(earlier, SIGKILL)).toBe(false);
  expect(isAlive(identity)).toBe(true);
  child.kill("SIGKILL");
  await once(child, "exit");
});

test("a process that was not reaped yet counts as dead", async () => {
  const script = "sleep 600 & kill -9 $!; echo $!; exec sleep 600";
  const parent = spawn("sh", ["-c", script], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = (await once(parent.stdout, "data")) as [Buffer];
  const pid = Number(line.toString());
  await expect.poll(() => identifyProcess(pid)).toBeUndefined();
  parent.kill("SIGKILL");
  await once(parent, "exit");
});

test("a command's name cannot forge the fields of its stat line", () => {
  const fields = Array.from({ length: 20 }, (_, index) => index + 3);
  fields[1] = 42;
  const line = `7 (a) Z 1 (b) S ${fields.slice(1).join(" ")}`;
  expect(parseProcessStat(line)).toEqual({ state: "S", startTime: 22 });
});

test("no process has an id beyond the kernel's range", () => {
  expect(identifyProcess(2 ** 30)).toBeUndefined();
  expect(signalProcess({ pid: 2 ** 30, startTime: 1 }, SIGKILL)).toBe(false);
});
