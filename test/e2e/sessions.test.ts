/** Sessions through SDK, coordinator, daemon and agent, in real containers. */
import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";

let fleet: Fleet;
let client: DSecClient;
let sandbox: Sandbox;

beforeAll(async () => {
  fleet = await startFleet();
  client = await fleet.client();
  sandbox = await client.runContainer({
    image: "busybox",
    memoryMb: 128,
    workdir: "/tmp",
    env: { FROM: "sandbox" },
  });
});

afterAll(async () => {
  await client?.close();
  await fleet?.[Symbol.asyncDispose]();
});

test("directory, variables, functions and umask persist from call to call", async () => {
  expect((await sandbox.runShell("pwd; echo $FROM")).stdout).toBe("/tmp\nsandbox\n");
  await sandbox.runShell("cd /bin; X=1; export Y=2; f() { echo f $1; }; umask 077");
  const result = await sandbox.runShell("pwd; echo $X $Y; f 3; umask; echo err >&2; (exit 5)");
  expect(result).toMatchObject({
    exitCode: 5,
    cause: "exited",
    stdout: "/bin\n1 2\nf 3\n0077\n",
    stderr: "err\n",
    session: { name: "main", shell: "kept" },
  });
});

test("variables and directory of one call are gone after it", async () => {
  const options = { session: "once", env: { ONCE: "it's" }, cwd: "/etc" };
  expect((await sandbox.runShell("pwd; env | grep ^ONCE", options)).stdout).toBe("/etc\nONCE=it's\n");
  expect((await sandbox.runShell("pwd; echo ${ONCE-gone}", { session: "once" })).stdout).toBe("/tmp\ngone\n");
  await expect(sandbox.runShell("true", { cwd: "/no/such" })).rejects.toMatchObject({ code: "no_such_cwd" });
});

test("a timeout ends the command and leaves the session", async () => {
  await sandbox.runShell("cd /usr; sleep 1000 & echo $! >/tmp/server", { session: "timed" });
  const result = await sandbox.runShell("echo begun; sleep 1000; touch /tmp/evil", {
    session: "timed",
    timeoutMs: 1500,
  });
  expect(result).toMatchObject({
    stdout: "begun\n",
    exitCode: 124,
    cause: "timeout",
    timedOut: true,
    session: { shell: "kept" },
  });
  const after = await sandbox.runShell("pwd; kill -0 $(cat /tmp/server) && test ! -e /tmp/evil", {
    session: "timed",
  });
  expect(after).toMatchObject({ exitCode: 0, stdout: "/usr\n" });
});

test("a caller that gives up ends the command and leaves the session", async () => {
  await sandbox.runShell("cd /usr", { session: "abort" });
  const begun = Promise.withResolvers<void>();
  const abort = new AbortController();
  const call = sandbox.runShell("echo begun; sleep 1000; touch /tmp/evil", {
    session: "abort",
    signal: abort.signal,
    onStdout: () => begun.resolve(),
  });
  await begun.promise;
  abort.abort();
  await expect(call).rejects.toMatchObject({ code: "cancelled" });
  const after = await sandbox.runShell("pwd; test ! -e /tmp/evil", { session: "abort" });
  expect(after).toMatchObject({ exitCode: 0, stdout: "/usr\n", session: { shell: "kept" } });
});

test("a command that ends the shell says so", async () => {
  expect(await sandbox.runShell("X=1; exit 3", { session: "ends" })).toMatchObject({
    exitCode: 3,
    session: { shell: "restarted" },
  });
  expect(await sandbox.runShell("echo ${X-fresh}", { session: "ends" })).toMatchObject({
    stdout: "fresh\n",
    session: { shell: "kept" },
  });
});

test("sessions are listed and ended, with their processes", async () => {
  const { stdout } = await sandbox.runShell("sleep 1000 & echo $!", { session: "listed" });
  const listed = (await sandbox.sessions()).find(({ name }) => name === "listed");
  expect(listed).toMatchObject({ busy: false, commands: 1, restarts: 0 });
  await sandbox.endSession("listed");
  expect((await sandbox.sessions()).map(({ name }) => name)).not.toContain("listed");
  expect((await sandbox.runShell(`kill -0 ${stdout.trim()}`)).exitCode).toBe(1);
  await expect(sandbox.endSession("listed")).rejects.toMatchObject({ code: "not_found" });
  await expect(sandbox.runShell("true", { session: "../x" })).rejects.toMatchObject({
    code: "invalid_argument",
  });
});

test("a command killed for want of memory is told from one that failed", async () => {
  const hog = "a=$(head -c 300000000 /dev/zero | tr '\\0' a)";
  const result = await sandbox.runShell(hog, { session: "hog" });
  expect(result).toMatchObject({ exitCode: 137, cause: "oom" });
  expect((await sandbox.runShell("echo ok", { session: "hog" })).stdout).toBe("ok\n");
});

test("50 MB pass exactly, with a receiver that takes its time", async () => {
  const script = "head -c 50000000 /dev/urandom >/tmp/random; sha256sum </tmp/random >&2; cat /tmp/random";
  const hash = createHash("sha256");
  let turn = 0;
  const result = await sandbox.runShell(script, {
    session: "big",
    async onStdout(bytes) {
      if (turn++ % 50 === 0) await new Promise(setImmediate);
      hash.update(bytes);
    },
  });
  expect(result.stderr.split(" ")[0]).toBe(hash.digest("hex"));
  await sandbox.runShell("rm /tmp/random");
});

test("200 sessions take 10 commands each at once", { timeout: 120_000 }, async () => {
  const crowd = await client.runContainer({ image: "busybox", memoryMb: 512, pidsLimit: 2048 });
  const outputs = await Promise.all(
    Array.from({ length: 200 }, async (_, index) => {
      const session = `s${index}`;
      let last = "";
      for (let step = 0; step < 10; step++)
        last = (await crowd.runShell(`n=$((n+${index})); echo $n`, { session })).stdout;
      return last;
    }),
  );
  expect(outputs).toEqual(outputs.map((_, index) => `${10 * index}\n`));
  await crowd.remove();
});

test("after a crash of the daemon the loss of the shell is told", async () => {
  await sandbox.runShell("X=1", { session: "crash" });
  await fleet.kill("SIGKILL");
  await fleet.restart();
  expect(await sandbox.runShell("echo ${X-fresh}", { session: "crash" })).toMatchObject({
    stdout: "fresh\n",
    session: { shell: "restarted" },
  });
  expect(await sandbox.runShell("true", { session: "crash" })).toMatchObject({ session: { shell: "kept" } });
  expect(await sandbox.runShell("true", { session: "new" })).toMatchObject({ session: { shell: "kept" } });
});
