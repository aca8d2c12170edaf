import { expect, test } from "vitest";
import type { DSecError } from "../../src/protocol/errors.ts";
import { run, sh } from "./fixture.ts";
import type { Suite } from "./suite.ts";

export function execSentences({ fixture, subject }: Suite): void {
  const real = subject.capabilities.realProcesses;

  test("an exit code is passed on as it is", async () => {
    const { guest } = await fixture().start();
    for (const code of [0, 1, 42, 124, 125, 126, 127, 255]) {
      expect((await sh(guest, `exit ${code}`)).exit).toEqual({
        code,
        timedOut: false,
        stdoutBytes: 0,
        stderrBytes: 0,
      });
    }
  });

  test("a process that a signal ended reports 128 and the signal", async () => {
    const { guest } = await fixture().start();
    expect((await sh(guest, "kill -9 $$")).exit).toMatchObject({ code: 137, signal: 9, timedOut: false });
    expect((await sh(guest, "kill -15 $$")).exit).toMatchObject({ code: 143, signal: 15 });
  });

  test("argv is passed on exactly as given", async () => {
    const { guest } = await fixture().start();
    const words = ["a", "b c", "", "$HOME", "`id`", "'quoted\"", "*", "-x", "new\nline", "ü☃", "\\"];
    const { stdout } = await run(guest, ["printf", "%s\\0", ...words]);
    expect(stdout.toString().split("\0").slice(0, -1)).toEqual(words);
  });

  test("a command of four thousand arguments runs", async () => {
    const { guest } = await fixture().start();
    const words = Array.from({ length: 4000 }, (_, index) => `word-${index}`);
    expect((await run(guest, ["printf", "%s\\n", ...words])).text).toBe(`${words.join("\n")}\n`);
  });

  test("the environment is the given one, with PATH, HOME and USER where they are missing", async () => {
    const { guest } = await fixture().start();
    const { text } = await run(guest, ["env"], { env: { NAME: "a b=c", EMPTY: "" } });
    const names = text
      .trim()
      .split("\n")
      .map((line) => line.slice(0, line.indexOf("=")));
    expect(names.filter((name) => name !== "PWD" && name !== "SHLVL").sort()).toEqual(
      ["EMPTY", "HOME", "NAME", "PATH", "USER"].sort(),
    );
    expect(text).toContain("NAME=a b=c\n");
    expect(text).toContain("HOME=/root\n");
    const overridden = await run(guest, ["env"], { env: { HOME: "/tmp", PATH: "/bin:/usr/bin" } });
    expect(overridden.text).toContain("HOME=/tmp\n");
    expect(overridden.text).toContain("PATH=/bin:/usr/bin\n");
  });

  test("the working directory is the asked one", async () => {
    const { guest } = await fixture().start();
    expect((await run(guest, ["pwd"], { cwd: "/tmp" })).text).toBe("/tmp\n");
  });

  test("a working directory that does not exist is an error that names it", async () => {
    const { guest } = await fixture().start();
    const error = await failure(run(guest, ["true"], { cwd: "/no/such/place" }));
    expect(error).toMatchObject({ code: "no_such_cwd", details: { cwd: "/no/such/place" } });
  });

  test("a user may be given by name or number, with or without a group", async () => {
    const { guest } = await fixture().start();
    const ids = async (user: string): Promise<string> =>
      (await run(guest, ["id", "-u"], { user })).text + (await run(guest, ["id", "-g"], { user })).text;
    expect(await ids("root")).toBe("0\n0\n");
    expect(await ids("nobody")).toBe("65534\n65534\n");
    expect(await ids("65534")).toBe("65534\n65534\n");
    expect(await ids("nobody:root")).toBe("65534\n0\n");
    expect(await ids("1234:5678")).toBe("1234\n5678\n");
  });

  test("a user that does not exist is an error that names it", async () => {
    const { guest } = await fixture().start();
    const error = await failure(run(guest, ["true"], { user: "nosuchuser" }));
    expect(error).toMatchObject({ code: "no_such_user", details: { user: "nosuchuser" } });
    expect(await failure(run(guest, ["true"], { user: "root:nosuchgroup" }))).toMatchObject({
      code: "no_such_user",
    });
  });

  test("a command that does not exist is an error that names it", async () => {
    const { guest } = await fixture().start();
    const error = await failure(run(guest, ["no-such-command"]));
    expect(error).toMatchObject({ code: "command_not_found", exitCode: 127 });
    expect(error.message).toContain("no-such-command");
  });

  test.runIf(real)("a file that is not executable is an error of its own", async () => {
    const { guest } = await fixture().start();
    expect(await failure(run(guest, ["/etc/passwd"]))).toMatchObject({
      code: "command_not_executable",
      exitCode: 126,
    });
  });

  test("the sandbox has the host name that was asked for", async () => {
    const wish = fixture().wish();
    const { guest } = await fixture().startWish(wish, new AbortController().signal);
    expect((await run(guest, ["hostname"])).text).toBe(`${wish.hostname}\n`);
  });

  test("a hundred execs at once each get their own output", async () => {
    const { guest } = await fixture().start();
    const results = await Promise.all(
      Array.from({ length: 100 }, (_, index) => run(guest, ["echo", `number ${index}`])),
    );
    expect(results.map(({ text }) => text)).toEqual(results.map((_, index) => `number ${index}\n`));
  });

  test("a timeout kills, and what was captured until then is returned and marked", async () => {
    const { guest } = await fixture().start();
    const { exit, text } = await sh(guest, "echo before; sleep 1000", { timeoutMs: 1500 });
    expect(exit).toMatchObject({ timedOut: true, signal: 9, stdoutBytes: 7 });
    expect(text).toBe("before\n");
  });

  test("a timeout fires whatever the I/O does", async () => {
    const { guest } = await fixture().start();
    const waitsForInput = await run(guest, ["cat"], { stdin: true, timeoutMs: 200 });
    expect(waitsForInput.exit.timedOut).toBe(true);
    const writesForEver = await run(guest, ["yes"], { timeoutMs: 200 });
    expect(writesForEver.exit.timedOut).toBe(true);
    expect(writesForEver.stdout.length).toBe(writesForEver.exit.stdoutBytes);
  });

  test("a signal reaches a running process", async () => {
    const { guest } = await fixture().start();
    const exec = await guest.exec({ argv: ["sleep", "1000"], env: {}, stdin: false }, () => {});
    exec.signal(15, "process");
    expect(await exec.exit).toMatchObject({ code: 143, signal: 15 });
    exec.signal(9, "tree");
    exec.release();
  });
}

async function failure(work: Promise<unknown>): Promise<DSecError> {
  return work.then(
    () => Promise.reject(new Error("it did not fail")),
    (error: DSecError) => error,
  );
}
