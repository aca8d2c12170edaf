import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dsecProgram, type Fleet, startFleet } from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";

let fleet: Fleet;

beforeAll(async () => {
  fleet = await startFleet();
  await fleet.dsec(["run", "-q", "--name", "box", ...sandboxFlags]);
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
});

/**
 * Runs a line of shell on a terminal of its own, made by script(1). `dsec` is the built program. Each answer is typed when
 * its prompt has been seen.
 */
async function onTerminal(line: string, answers: readonly (readonly [prompt: string, keys: string])[] = []) {
  const dsec = `dsec() { "${process.execPath}" -- "${dsecProgram}" "$@"; }`;
  const script = spawn("script", ["-qec", `${dsec}; stty rows 40 cols 100; ${line}`, "/dev/null"], {
    env: { ...process.env, ...fleet.env, TERM: "vt220", SHELL: "/bin/bash" },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const waiting = [...answers];
  let screen = "";
  let unseen = "";
  script.stdout.on("data", (chunk: Buffer) => {
    screen += String(chunk);
    unseen += String(chunk);
    const [next] = waiting;
    if (next === undefined || !unseen.includes(next[0])) return;
    waiting.shift();
    unseen = "";
    script.stdin.write(next[1]);
  });
  const [code] = await once(script, "close");
  return { code: Number(code), screen: screen.replaceAll("\r\n", "\n") };
}

describe("a command on a terminal", () => {
  test("has one of the same size and kind", async () => {
    const { code, screen } = await onTerminal(`dsec exec -it box sh -c 'stty size; echo "$TERM"; tty'`);
    expect(code).toBe(0);
    expect(screen).toBe("40 100\nvt220\n/dev/pts/0\n");
  });

  test("reads keys as they are typed; Ctrl-C reaches it, not us", async () => {
    const command = `dsec exec -it box sh -c 'trap "echo caught; exit 9" INT; echo ready; while :; do sleep 1; done'`;
    const { code, screen } = await onTerminal(command, [["ready", "\x03"]]);
    expect(screen).toContain("caught");
    expect(code).toBe(9);
  });

  test.each([
    ["after its end", `sh -c 'exit 3'`, 3],
    ["after a command that cannot be run", "nosuchcommand", 127],
  ])("leaves the terminal as it was %s", async (_, command, expected) => {
    const { screen } = await onTerminal(`dsec exec -it box ${command}; echo "code $?"; stty -a`);
    expect(screen).toContain(`code ${expected}`);
    expect(screen).toMatch(/(?<!-)icanon/);
    expect(screen).toMatch(/ echo /);
    expect(screen).toMatch(/(?<!-)opost/);
  });

  test("is left running by ctrl-p ctrl-q", async () => {
    const command = `dsec exec -it box sh -c 'echo ready; sleep 1000'; echo "code $?"`;
    const { screen } = await onTerminal(command, [["ready", "\x10\x11"]]);
    expect(screen).toContain("detached");
    expect(screen).toContain("code 0");
    const execs = JSON.parse((await fleet.dsec(["logs", "--execs", "-o", "json", "box"])).stdout);
    expect(execs).toContainEqual(expect.objectContaining({ state: "running" }));
  });
});

describe("colours", () => {
  test("are there on a terminal, unless NO_COLOR or --no-color says otherwise", async () => {
    const escape = "\u001b[";
    expect((await onTerminal("dsec ls")).screen).toContain(`${escape}32mrunning`);
    expect((await onTerminal("dsec ls --no-color")).screen).not.toContain(escape);
    expect((await onTerminal("NO_COLOR=1 dsec ls")).screen).not.toContain(escape);
    expect((await onTerminal("dsec ls | cat")).screen).not.toContain(escape);
  });
});

describe("shell", () => {
  test("is interactive on a terminal", async () => {
    const { code, screen } = await onTerminal("dsec shell box", [
      ["# ", "cd /tmp; echo in $PWD\r"],
      ["in /tmp", "exit 5\r"],
    ]);
    expect(screen).toContain("in /tmp");
    expect(code).toBe(5);
  });
});

describe("run", () => {
  test("-it --rm is a sandbox for one session", async () => {
    const { code, screen } = await onTerminal(
      `dsec run -it --rm --name session ${sandboxFlags.join(" ")} sh`,
      [
        ["# ", "echo $((6 * 7))\r"],
        ["42", "exit\r"],
      ],
    );
    expect(screen).toContain("42");
    expect(code).toBe(0);
    expect((await fleet.dsec(["inspect", "session"])).stderr).toContain("(not_found)");
  });
});
