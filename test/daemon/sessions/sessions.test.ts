import { existsSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DSecError } from "../../../src/protocol/errors.ts";
import { bashDriver } from "../../../src/daemon/sessions/bash-driver.ts";
import { posixDriver } from "../../../src/daemon/sessions/posix-driver.ts";
import { shells } from "../../../src/daemon/sessions/shells.ts";
import { isAlive } from "../../agent/process-state.ts";
import { type SessionFixture, startSessions } from "./session-fixture.ts";

let fixture: SessionFixture;

beforeAll(async () => {
  fixture = await startSessions({ driver: bashDriver });
});

afterAll(async () => {
  await fixture[Symbol.asyncDispose]();
});

test("bash is looked for first, then the POSIX shell", () => {
  expect(shells.map(({ argv }) => argv[0])).toEqual(["bash", "/bin/sh"]);
});

test("an image without bash gets its POSIX shell, and one without any is refused", async () => {
  const missing = { ...bashDriver, argv: ["/no/such/shell"] };
  await using none = await startSessions({ driver: missing });
  await expect(none.run("true")).rejects.toMatchObject({ code: "command_not_found" });
  expect(none.sessions.list()).toEqual([]);
});

test("a shell that takes no commands is an error", async () => {
  await using deaf = await startSessions({
    driver: { ...bashDriver, argv: ["sleep", "1000"] },
    graceMs: 100,
  });
  await expect(deaf.run("true")).rejects.toMatchObject({ code: "unsupported" });
  await using short = await startSessions({ driver: { ...bashDriver, argv: ["true"] } });
  await expect(short.run("true")).rejects.toMatchObject({ code: "unsupported" });
});

test("the default session is main, and sessions know nothing of each other", async () => {
  await fixture.run("X=main");
  await fixture.run("X=other; cd /", { session: "other" });
  expect((await fixture.run("echo $X; pwd")).stdout).toBe(`main\n${fixture.directory}\n`);
  expect((await fixture.run("echo $X; pwd", { session: "other" })).stdout).toBe("other\n/\n");
});

test("sessions are listed as they are", async () => {
  await fixture.run("exit 1", { session: "listed" });
  await fixture.run("true", { session: "listed" });
  const { stdout } = await fixture.run("echo $$", { session: "listed" });
  const listed = (): unknown => fixture.sessions.list().find(({ name }) => name === "listed");
  expect(listed()).toEqual({
    name: "listed",
    pid: Number(stdout),
    busy: false,
    commands: 3,
    restarts: 1,
    startedAt: expect.any(Number),
    lastUsedAt: expect.any(Number),
  });
  const running = fixture.run("sleep 1000", { session: "listed" });
  await expect.poll(() => listed()).toMatchObject({ busy: true, commands: 4 });
  await fixture.sessions.end("listed");
  expect((await running).exit.code).toBe(137);
  expect(listed()).toBeUndefined();
});

test("commands of one session run one after the other, in order", async () => {
  const session = "order";
  const runs = Array.from({ length: 100 }, async (_, i) =>
    fixture.run(`test -e lock && echo overlap; >lock; n=$((\${n-0}+1)); echo $n ${i}; rm lock`, { session }),
  );
  const outputs = (await Promise.all(runs)).map(({ stdout }) => stdout);
  expect(outputs).toEqual(outputs.map((_, i) => `${i + 1} ${i}\n`));
});

test("sessions run in parallel", async () => {
  // each waits for the other
  const [left, right] = await Promise.all([
    fixture.run("mkfifo there 2>/dev/null; mkfifo back 2>/dev/null; echo ping >there; cat back", {
      session: "left",
    }),
    fixture.run("mkfifo there 2>/dev/null; mkfifo back 2>/dev/null; cat there; echo pong >back", {
      session: "right",
    }),
  ]);
  expect([left.stdout, right.stdout]).toEqual(["pong\n", "ping\n"]);
});

test("a waiting command that is given up never runs", async () => {
  const session = "waiting";
  const first = fixture.run("while ! test -e go; do sleep 0.01; done", { session });
  const abort = new AbortController();
  const second = fixture.run("touch second", { session }, abort.signal);
  const third = fixture.run("echo third", { session });
  abort.abort(new DSecError("cancelled", "no longer wanted"));
  await expect(second).rejects.toMatchObject({ code: "cancelled" });
  await fixture.run("touch go", { session: "opener" });
  await first;
  expect((await third).stdout).toBe("third\n");
  expect(existsSync(`${fixture.directory}/second`)).toBe(false);
});

test("only so many commands may wait", async () => {
  const session = "crowd";
  await fixture.run("true", { session });
  const running = fixture.run("sleep 1000", { session });
  const count = (): number => fixture.sessions.list().find(({ name }) => name === session)?.commands ?? 0;
  await expect.poll(() => count()).toBe(2);
  const waiting = Array.from({ length: 256 }, async () => fixture.run("true", { session }));
  await expect(fixture.run("true", { session })).rejects.toMatchObject({
    code: "session_limit",
    retryable: true,
  });
  const settled = Promise.allSettled(waiting);
  await fixture.sessions.end(session);
  expect((await running).exit.code).toBe(137);
  const reasons = (await settled).map((result) => result.status === "rejected" && result.reason.code);
  expect(new Set(reasons)).toEqual(new Set(["cancelled"]));
});

test("ending a session leaves none of its processes", async () => {
  const { stdout } = await fixture.run(
    "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); echo $$",
    {
      session: "doomed",
    },
  );
  const pids = stdout.trim().split("\n").map(Number);
  expect(pids.length).toBe(4);
  await fixture.sessions.end("doomed");
  await expect.poll(() => pids.map(isAlive)).toEqual([false, false, false, false]);
  await expect(fixture.sessions.end("doomed")).rejects.toMatchObject({ code: "not_found" });
});

test("a session belongs to the user it began with", async () => {
  const { stdout } = await fixture.run("id -un; cd /; pwd", { session: "nobody", user: "nobody" });
  expect(stdout).toBe("nobody\n/\n");
  expect((await fixture.run("id -un", { session: "nobody" })).stdout).toBe("nobody\n");
  await expect(fixture.run("id", { session: "nobody", user: "root" })).rejects.toMatchObject({
    code: "conflict",
  });
  await fixture.run("exit", { session: "nobody" });
  expect((await fixture.run("id -un", { session: "nobody" })).stdout).toBe("nobody\n");
  await expect(fixture.run("id", { session: "x", user: "no-such-user" })).rejects.toMatchObject({
    code: "no_such_user",
  });
  expect(fixture.sessions.list().map(({ name }) => name)).not.toContain("x");
});

test("a sandbox has at most 512 sessions, and hundreds of them work at once", async () => {
  await using many = await startSessions({ driver: { ...posixDriver, argv: ["dash"] } });
  const names = Array.from({ length: 512 }, (_, i) => `s${i}`);
  const started = await Promise.all(names.map(async (session, i) => many.run(`n=${i}`, { session })));
  expect(new Set(started.map(({ exit }) => exit.code))).toEqual(new Set([0]));
  await expect(many.run("true", { session: "one-more" })).rejects.toMatchObject({ code: "session_limit" });
  const answers = await Promise.all(names.map(async (session) => many.run("echo $n", { session })));
  expect(answers.map(({ stdout }) => stdout)).toEqual(names.map((_, i) => `${i}\n`));
  // one look at every process of the machine less for each
  for (const { pid } of many.sessions.list()) process.kill(pid ?? 0, "SIGKILL");
}, 60_000);
