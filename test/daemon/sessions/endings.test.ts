import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isAlive } from "../../agent/process-state.ts";
import { type SessionFixture, startSessions, testedShells } from "./session-fixture.ts";

/** What ends a shell: the command, its output and its exit code. */
const ends: readonly (readonly [sentence: string, command: string, stdout: string, code: number])[] = [
  ["exit", "echo x; exit 3; echo no", "x\n", 3],
  ["exit of a function", "f() { exit 4; }; f", "", 4],
  ["exec", "exec sh -c 'echo x; exit 9'", "x\n", 9],
  ["set -e and a failure", "set -e; echo x; false; echo no", "x\n", 1],
  ["kill -9", "printf x; kill -9 $$", "x", 137],
  ["kill -TERM", "printf x; kill -TERM $$", "x", 143],
  ["an EXIT trap, whose output belongs to the command", "trap 'echo bye' EXIT; exit 5", "bye\n", 5],
];

describe.each(Object.entries(testedShells))("the end of a shell of %s", (name, driver) => {
  let fixture: SessionFixture;

  beforeAll(async () => {
    fixture = await startSessions({ driver });
  });

  afterAll(async () => {
    await fixture[Symbol.asyncDispose]();
  });

  test.for(ends)(
    "by %s is reported, and the next command meets a fresh one",
    async ([, command, stdout, code]) => {
      const session = "ends";
      await fixture.run("X=1; cd /usr", { session });
      const run = await fixture.run(command, { session });
      expect([run.stdout, run.exit.code, run.session.shell]).toEqual([stdout, code, "restarted"]);
      const next = await fixture.run('pwd; echo "${X-fresh}"', { session });
      expect([next.stdout, next.session.shell]).toEqual([`${fixture.directory}\nfresh\n`, "kept"]);
    },
  );

  test("while no command runs is told with the next command", async () => {
    const session = "idle";
    const { stdout } = await fixture.run("echo $$", { session });
    process.kill(Number(stdout), "SIGKILL");
    await expect.poll(() => fixture.sessions.list().find((s) => s.name === session)?.pid).toBeUndefined();
    const next = await fixture.run("echo ok", { session });
    expect([next.stdout, next.exit.code, next.session.shell]).toEqual(["ok\n", 0, "restarted"]);
    expect((await fixture.run("echo ok", { session })).session.shell).toBe("kept");
    expect(fixture.sessions.list().find((s) => s.name === session)).toMatchObject({
      restarts: 1,
      commands: 3,
    });
  });

  test("leaves its background processes, which end with the session", async () => {
    const session = "left";
    const { stdout } = await fixture.run("sleep 1000 & echo $!; exit 1", { session });
    const background = Number(stdout);
    await fixture.run("true", { session });
    expect(isAlive(background)).toBe(true);
    await fixture.sessions.end(session);
    await expect.poll(() => isAlive(background)).toBe(false);
  });

  test("follows from a limit of open files that leaves it unable to report", async () => {
    const session = "limit";
    // busybox ash loops for ever over it
    const run = await fixture.run("ulimit -n 9; echo x", { session, timeoutMs: name === "ash" ? 200 : 0 });
    expect([run.stdout, run.session.shell]).toEqual(["x\n", "restarted"]);
    expect((await fixture.run("echo y", { session })).stdout).toBe("y\n");
  });
});
