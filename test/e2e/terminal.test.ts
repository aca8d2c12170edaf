/** Interactive commands on a real terminal: what a person at it would type, see and find afterwards. */
import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Fleet, startFleet } from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";
import { Terminal } from "./tmux.ts";

let fleet: Fleet;

beforeAll(async () => {
  fleet = await startFleet();
  await fleet.dsec(["run", "-q", "--name", "box", ...sandboxFlags]);
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
});

/** Lines of `ps` inside. */
async function processes(): Promise<string> {
  return (await fleet.dsec(["exec", "box", "--", "ps", "-o", "args"])).stdout;
}

const patience = { timeout: 30_000 };

describe("the size of the window", () => {
  test("is the command's from the start, and follows every change", async () => {
    const command = `trap 'stty size' WINCH; stty size; while :; do sleep 1000 & wait; done`;
    await using terminal = await Terminal.open(fleet, `dsec exec -it box sh -c "${command}"`);
    await terminal.shows("40 100");
    await terminal.resize(30, 120);
    await terminal.shows("30 120");
    await terminal.resize(50, 80);
    await terminal.shows("50 80");
    await terminal.press("C-c");
    expect(await terminal.ended()).toMatchObject({ code: 130 });
  });
});

describe("job control", () => {
  test("ctrl-z suspends what runs inside, fg resumes it, ctrl-c ends it; ctrl-d ends the shell", async () => {
    await using terminal = await Terminal.open(fleet, "dsec shell box");
    await terminal.shows("/ #");
    await terminal.type("sleep 4321\r");
    await expect.poll(processes, patience).toContain("sleep 4321");
    await terminal.press("C-z");
    await terminal.shows(/Stopped +sleep 4321/);
    await terminal.type("fg\r");
    await terminal.shows(/fg\n+sleep 4321/);
    await terminal.press("C-c");
    await terminal.type("echo code $?\r");
    await terminal.shows("code 130");
    expect(await processes()).not.toContain("sleep 4321");
    await terminal.press("C-d");
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
  });
});

describe("a terminal without stdin", () => {
  test("has ctrl-c reach the command all the same", async () => {
    const command = `trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 1000 & wait; done`;
    await using terminal = await Terminal.open(fleet, `dsec exec -t box sh -c "${command}"`);
    await terminal.shows("ready");
    await terminal.press("C-c");
    expect(await terminal.ended()).toEqual({ code: 9, settingsKept: true });
    await terminal.shows("caught");
  });
});

describe("a full-screen program", () => {
  test("has the whole window, and gives it back", async () => {
    await using terminal = await Terminal.open(fleet, "echo before; dsec exec -it box vi /tmp/greeting");
    await terminal.shows(/~\n.*- \/tmp\/greeting/s);
    expect((await terminal.screen()).split("\n")).toHaveLength(40);
    await terminal.resize(24, 60);
    await expect.poll(async () => (await terminal.screen()).split("\n").length, patience).toBe(24);
    await terminal.type("iGrüße, 世界 👋");
    await terminal.shows(/^Grüße.*\nI /s);
    await terminal.press("Escape");
    await terminal.shows(/^Grüße.*\n- /s);
    await terminal.type(":wq\r");
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
    expect(await terminal.modes()).toEqual({ alternateScreen: false, cursorHidden: false });
    expect(await terminal.screen()).toContain("before");
    expect((await fleet.dsec(["exec", "box", "--", "cat", "/tmp/greeting"])).stdout).toBe("Grüße, 世界 👋\n");
  });
});

describe("what is pasted", () => {
  test("arrives whole: 100 kB of UTF-8 into a shell's cat", async () => {
    const line = "naïve café — 日本語 👋🏽 e\u0301 \u202e";
    const text = `${Array.from({ length: 2200 }, (_, n) => `${n} ${line}`).join("\n")}\n`;
    expect(Buffer.byteLength(text)).toBeGreaterThan(100_000);
    await using terminal = await Terminal.open(
      fleet,
      "dsec exec -it box sh -c 'stty -echo; echo go; cat >/tmp/pasted'",
    );
    await terminal.shows("go");
    await terminal.paste(text);
    await terminal.press("C-d");
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
    const { stdout } = await fleet.dsec(["exec", "box", "--", "sha256sum", "/tmp/pasted"]);
    expect(stdout.split(" ")[0]).toBe(sha256(text));
  });

  test("comes in the brackets that the program asked for, untouched", async () => {
    const text = "one\ntwo\tthree";
    const bracketed = `\u001b[200~${text}\u001b[201~`;
    const command = `stty raw -echo; printf "\\033[?2004hgo"; head -c ${bracketed.length} | sha256sum`;
    await using terminal = await Terminal.open(fleet, `dsec exec -it box sh -c '${command}'`);
    await terminal.shows("go");
    await terminal.paste(text);
    await terminal.shows(sha256(bracketed));
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
  });
});

describe("the terminal is as it was after", () => {
  test.each([
    ["the command's end", "exit 7", 7],
    ["a command killed inside", "kill -9 $$", 137],
  ])("%s", async (_, end, code) => {
    await using terminal = await Terminal.open(fleet, "dsec exec -it box sh");
    await terminal.shows("/ #");
    await terminal.type(`${end}\r`);
    expect(await terminal.ended()).toEqual({ code, settingsKept: true });
  });

  test("a command that cannot be run", async () => {
    await using terminal = await Terminal.open(fleet, "dsec exec -it box nosuchcommand");
    expect(await terminal.ended()).toEqual({ code: 127, settingsKept: true });
  });

  test.each([
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const)("%s to us, which hangs the command up", async (signal, code) => {
    await using terminal = await Terminal.open(fleet, `dsec exec -it box sh -c 'exec vi /tmp/${signal}'`);
    await terminal.shows(`- /tmp/${signal}`);
    process.kill(await terminal.pid(), signal);
    expect(await terminal.ended()).toEqual({ code, settingsKept: true });
    expect(await terminal.modes()).toEqual({ alternateScreen: false, cursorHidden: false });
    await expect.poll(processes, patience).not.toContain(`vi /tmp/${signal}`);
  });

  test("a crash of dsec itself", async () => {
    // without spaces: it goes through NODE_OPTIONS
    const crash = "data:text/javascript,process.on('SIGUSR2',()=>{throw/**/Error('crashed')})";
    const line = `export NODE_OPTIONS="--import=${crash}"; dsec exec -it box vi /tmp/crash`;
    await using terminal = await Terminal.open(fleet, line);
    await terminal.shows("- /tmp/crash");
    process.kill(await terminal.pid(), "SIGUSR2");
    expect(await terminal.ended()).toMatchObject({ settingsKept: true });
    await terminal.shows("crashed");
    expect(await terminal.modes()).toEqual({ alternateScreen: false, cursorHidden: false });
  });

  test("a stopped sandbox", async () => {
    await fleet.dsec(["run", "-q", "--name", "doomed", ...sandboxFlags]);
    await using terminal = await Terminal.open(fleet, "dsec shell doomed");
    await terminal.shows("/ #");
    await terminal.type("vi /tmp/x\r");
    await terminal.shows("- /tmp/x");
    await fleet.dsec(["stop", "doomed"]);
    expect(await terminal.ended()).toEqual({ code: 137, settingsKept: true });
    expect(await terminal.modes()).toEqual({ alternateScreen: false, cursorHidden: false });
  });

  test("a dropped link, which is told; what runs inside goes on", async () => {
    await using terminal = await Terminal.open(fleet, "dsec exec -it box vi /tmp/link");
    await terminal.shows("- /tmp/link");
    await fleet.kill("SIGKILL");
    expect(await terminal.ended()).toEqual({ code: 125, settingsKept: true });
    await terminal.shows("(connection_lost)");
    expect(await terminal.modes()).toEqual({ alternateScreen: false, cursorHidden: false });
    await fleet.restart();
    expect(await processes()).toContain("vi /tmp/link");
    const [again = ""] = /dsec attach -i \S+ \S+/.exec(await terminal.screen()) ?? [];
    await using second = await Terminal.open(fleet, again);
    // the program draws anew for the size of this window
    await second.type("\x0c");
    await second.shows("- /tmp/link");
    await second.type(":q!\r");
    expect(await second.ended()).toEqual({ code: 0, settingsKept: true });
  });
});

describe("a window that is closed", () => {
  test("takes its shell with it, and leaves no process here", async () => {
    await using terminal = await Terminal.open(fleet, "dsec shell box");
    await terminal.shows("/ #");
    await terminal.type("sleep 5432\r");
    await expect.poll(processes, patience).toContain("sleep 5432");
    const pid = await terminal.pid();
    await terminal.close();
    await expect.poll(() => isAlive(pid), patience).toBe(false);
    await expect.poll(processes, patience).not.toContain("sleep 5432");
  });
});

describe("a window that is closed on an attachment", () => {
  test("leaves the command running", async () => {
    const started = await fleet.dsec(["exec", "-dit", "box", "sh", "-c", "echo go; exec sleep 3210"]);
    const exec = started.stdout.trim();
    await using terminal = await Terminal.open(fleet, `dsec attach -i --from-start box ${exec}`);
    await terminal.shows("go");
    const pid = await terminal.pid();
    await terminal.close();
    await expect.poll(() => isAlive(pid), patience).toBe(false);
    expect(await processes()).toContain("sleep 3210");
  });
});

describe("detach keys", () => {
  test("of one's own leave the command running, with what was typed before them", async () => {
    const flags = "--detach-keys ctrl-a,d";
    await using terminal = await Terminal.open(
      fleet,
      `dsec exec -it ${flags} box sh -c 'echo go; read line; exec sleep $line'`,
    );
    await terminal.shows("go");
    // in one piece
    await terminal.type("6543\r\x01d");
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
    await terminal.shows("detached");
    await expect.poll(processes, patience).toContain("sleep 6543");
  });

  test("are none of a shell unless they are given", async () => {
    await using terminal = await Terminal.open(fleet, "dsec shell box");
    await terminal.shows("/ #");
    await terminal.type("stty raw -echo; echo go; head -c 2 | od -An -tx1; exit 3\r");
    await terminal.shows(/^go$/m);
    await terminal.type("\x10\x11");
    await terminal.shows("10 11");
    expect(await terminal.ended()).toEqual({ code: 3, settingsKept: true });
  });

  test("given to a shell leave it running", async () => {
    await using terminal = await Terminal.open(fleet, "dsec shell --detach-keys '~,.' box");
    await terminal.shows("/ #");
    await terminal.type("exec sleep 7654\r");
    await expect.poll(processes, patience).toContain("sleep 7654");
    await terminal.type("~.");
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
    expect(await processes()).toContain("sleep 7654");
  });
});

describe("a sandbox made for a command", () => {
  test("ends with its shell, whose exit code is ours", async () => {
    const line = `dsec run -it --rm --name mine ${sandboxFlags.join(" ")} sh`;
    await using terminal = await Terminal.open(fleet, line);
    await terminal.shows("/ #");
    await terminal.type("exit 9\r");
    expect(await terminal.ended()).toEqual({ code: 9, settingsKept: true });
    expect((await fleet.dsec(["inspect", "mine"])).stderr).toContain("(not_found)");
  });
});

describe("a dsec that was stopped", () => {
  test("has the terminal again when it goes on, also its new size", async () => {
    await using terminal = await Terminal.open(fleet, "dsec exec -it box sh");
    await terminal.shows("/ #");
    const pid = await terminal.pid();
    process.kill(pid, "SIGSTOP");
    await terminal.resize(33, 77);
    process.kill(pid, "SIGCONT");
    await terminal.type("stty size\r");
    await terminal.shows("33 77");
    await terminal.type("exit\r");
    expect(await terminal.ended()).toEqual({ code: 0, settingsKept: true });
  });
});

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
