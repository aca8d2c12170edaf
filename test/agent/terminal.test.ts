import { expect, test } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { run, sh, shareAgent, start } from "./agent-fixture.ts";
import { isAlive } from "./process-state.ts";

const tty = { rows: 33, cols: 99 };
let connection: AgentConnection;

shareAgent((_agent, made) => {
  connection = made;
});

test("a terminal has the asked size, is the controlling one, and all three streams", async () => {
  const script =
    "stty size; tty; test -t 0 && test -t 1 && test -t 2 && echo all; exec 3</dev/tty && echo controlling";
  const result = await run(connection, sh(script), { tty });
  const lines = result.stdout.toString().split("\r\n");
  expect(lines[0]).toBe("33 99");
  expect(lines[1]).toMatch(/^\/dev\/pts\/\d+$/);
  expect(lines.slice(2, 4)).toEqual(["all", "controlling"]);
  expect(result.stderrBytes).toBe(0);
});

test("a resize reaches the foreground process as SIGWINCH", async () => {
  const script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done";
  const { exec, output } = await start(connection, sh(script), { tty });
  await output.seen("ready");
  exec.resize(50, 132);
  expect((await exec.exit).code).toBe(0);
  expect(output.stdout.toString()).toContain("50 132");
  exec.release();
});

test("the interrupt character stops the foreground process group", async () => {
  const { exec, output } = await start(connection, sh("echo ready; exec sleep 1000"), {
    tty,
    stdin: true,
  });
  await output.seen("ready");
  await exec.write(Buffer.from("\x03"));
  expect(await exec.exit).toMatchObject({ code: 130, signal: 2 });
  exec.release();
});

test("ending stdin is the end of file, in the middle of a line too", async () => {
  for (const text of ["", "line\n", "no newline"]) {
    const { exec, output } = await start(connection, sh("stty -echo; echo ready; cat; echo over"), {
      tty,
      stdin: true,
    });
    await output.seen("ready");
    await exec.write(Buffer.from(text));
    exec.end();
    expect((await exec.exit).code).toBe(0);
    expect(output.stdout.toString()).toContain(`${text.replace("\n", "\r\n")}over`);
    exec.release();
  }
});

test("all output of a terminal arrives, although its processes end at once", async () => {
  const expected = Array.from({ length: 20_000 }, (_, i) => `${i + 1}\r\n`).join("");
  const results = await Promise.all(
    Array.from({ length: 4 }, () => run(connection, ["seq", "20000"], { tty })),
  );
  for (const result of results) expect(result.stdout.toString()).toBe(expected);
});

test("a background process that keeps the terminal does not delay the exit", async () => {
  const script = "trap '' HUP; setsid sh -c 'trap \"\" HUP; echo $$; exec sleep 1000' & sleep 0.1; echo main";
  const { exec, output } = await start(connection, sh(script), { tty });
  expect((await exec.exit).code).toBe(0);
  expect(output.stdout.toString()).toContain("main");
  const background = Number(/\d+/.exec(output.stdout.toString())?.[0]);
  expect(isAlive(background)).toBe(true);
  process.kill(background, "SIGKILL");
  await expect.poll(() => isAlive(background)).toBe(false);
  exec.release();
});

test("the terminal of another user is that user's", async () => {
  const result = await run(connection, sh("stat -c %U $(tty)"), { tty, user: "nobody" });
  expect(result.stdout.toString()).toBe("nobody\r\n");
});
