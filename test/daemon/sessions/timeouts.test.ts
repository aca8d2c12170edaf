import { existsSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mayEndExecution } from "../../../src/daemon/sessions/shell-driver.ts";
import { isAlive } from "../../agent/process-state.ts";
import { type SessionFixture, startSessions, testedShells } from "./session-fixture.ts";

/** Commands that do not end by themselves, and what they have written by then. */
const endless: readonly (readonly [sentence: string, command: string, stdout: string])[] = [
  ["a process", "echo x; sleep 1000", "x\n"],
  ["a process with more to come after it", "echo x; sleep 1000; touch evil", "x\n"],
  ["a pipeline", "echo x; sleep 1000 | sleep 1000; touch evil", "x\n"],
  ["a list", "sleep 1000 && touch evil || touch evil; touch evil", ""],
  ["a loop of processes", "while :; do sleep 0.01; done; touch evil", ""],
  ["a loop in the shell itself", "while :; do :; done; touch evil", ""],
  [
    "functions within functions",
    "f() { g; touch evil; }; g() { sleep 1000; touch evil; }; f; touch evil",
    "",
  ],
  ["a subshell", "(sleep 1000; touch evil); touch evil", ""],
  ["a command substitution", "x=$(sleep 1000; touch evil); touch evil", ""],
  ["an eval", "eval 'sleep 1000; touch evil'; touch evil", ""],
  ["a wait", "sleep 1000 & wait; touch evil", ""],
  ["processes in a session of their own", "setsid sleep 1000; touch evil", ""],
  ["a stopped shell", "kill -STOP $$; touch evil", ""],
];

describe.each(Object.entries(testedShells))("a timeout in %s", (name, driver) => {
  let fixture: SessionFixture;
  // bash before 5.1 cannot give up a command
  const after = name === "old-bash" ? "restarted" : "kept";

  beforeAll(async () => {
    fixture = await startSessions({ driver });
  });

  afterAll(async () => {
    await fixture[Symbol.asyncDispose]();
  });

  test.for(endless)("ends %s", async ([sentence, command, stdout]) => {
    const session = sentence.replaceAll(" ", "-");
    await fixture.run("X=1; cd /usr; cd - >&-", { session });
    const timeout = stdout === "" ? { timeoutMs: 100 } : { expiresAt: stdout };
    const run = await fixture.run(command, { session, ...timeout });
    expect(run).toMatchObject({ interrupted: "timeout", exit: { timedOut: true }, stdout });
    expect(run.session.shell).toBe(after);
    const next = await fixture.run('echo "${X-fresh}"', { session });
    expect(next).toMatchObject({
      stdout: after === "kept" ? "1\n" : "fresh\n",
      stderr: "",
      interrupted: undefined,
    });
    expect(existsSync(`${fixture.directory}/evil`)).toBe(false);
  });

  test("kills what the command began, and nothing that was there before", async () => {
    const session = "innocent";
    const before = await fixture.run("sleep 1000 & echo $!; (sleep 1001 & echo $!)", { session });
    const old = before.stdout.trim().split("\n").map(Number);
    expect(old.map(isAlive)).toEqual([true, true]);
    const pids = `${fixture.directory}/pids`;
    const run = await fixture.run(
      `{ sleep 1000 & echo $!; (sleep 1001 & echo $!); } >${pids}; echo begun; sleep 1002`,
      {
        session,
        expiresAt: "begun\n",
      },
    );
    expect(run.exit.timedOut).toBe(true);
    const fresh = readFileSync(pids, "utf8").trim().split("\n").map(Number);
    expect(fresh.length).toBe(2);
    expect(fresh.map(isAlive)).toEqual([false, false]);
    expect(old.map(isAlive)).toEqual([true, true]);
    await fixture.sessions.end(session);
    await expect.poll(() => old.map(isAlive)).toEqual([false, false]);
  });

  test("returns what was written until then", async () => {
    const run = await fixture.run("echo err >&2; echo out; printf partial; sleep 1000", {
      expiresAt: "out\npartial",
    });
    expect(run).toMatchObject({ stdout: "out\npartial", exit: { timedOut: true, stdoutBytes: 11 } });
    expect(run.stderr).toMatch(/^err\n/);
  });

  test("that does not come changes nothing", async () => {
    expect(await fixture.run("echo x; (exit 3)", { timeoutMs: 100_000 })).toMatchObject({
      stdout: "x\n",
      interrupted: undefined,
      exit: { code: 3, timedOut: false },
    });
  });

  test("is no different when the caller gives up", async () => {
    const session = "abort";
    await fixture.run("X=1", { session });
    const abort = new AbortController();
    const running = fixture.run("echo $$ >pid; sleep 1000; touch evil", { session }, abort.signal);
    await expect.poll(() => existsSync(`${fixture.directory}/pid`)).toBe(true);
    abort.abort();
    expect(await running).toMatchObject({
      interrupted: "abort",
      exit: { timedOut: false },
      session: { shell: after },
    });
    expect((await fixture.run("echo ok", { session })).stdout).toBe("ok\n");
    expect(existsSync(`${fixture.directory}/evil`)).toBe(false);
  });

  test("leaves shell options and traps as they were", async () => {
    const session = "state";
    await fixture.run("f() { sleep 1000; }", { session });
    const options = (await fixture.run("set +o; trap", { session })).stdout;
    await fixture.run("f", { session, timeoutMs: 100 });
    expect((await fixture.run("set +o; trap", { session })).stdout).toBe(options);
  });
});

test("a shell that runs nothing any more is killed soon after its command's time", async () => {
  const driver = testedShells["dash"];
  if (driver === undefined) throw new Error("no dash");
  await using fixture = await startSessions({ driver, graceMs: 600_000 });
  expect(await fixture.run("set -e -n; echo no", { timeoutMs: 1000 })).toMatchObject({
    stdout: "",
    exit: { timedOut: true },
    session: { shell: "restarted" },
  });
});

test.each([
  ["set -n", true],
  ["cd /; set -euno pipefail", true],
  ["set -o noexec", true],
  ["set -e; sort -n", false],
  ["reset -n", false],
])("%j may end execution: %j", (command, may) => {
  expect(mayEndExecution(command)).toBe(may);
});

test("a shell that does not give up is killed", async () => {
  const driver = testedShells["dash"];
  if (driver === undefined) throw new Error("no dash");
  await using fixture = await startSessions({ driver, graceMs: 200 });
  await fixture.run("X=1");
  const run = await fixture.run("trap '' 58; echo begun; while :; do :; done", { expiresAt: "begun\n" });
  expect(run).toMatchObject({ exit: { timedOut: true, code: 137 }, session: { shell: "restarted" } });
  expect((await fixture.run("echo ${X-fresh}")).stdout).toBe("fresh\n");
});
