import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";

let fleet: Fleet;
let client: DSecClient;
let sandbox: Sandbox;

beforeAll(async () => {
  fleet = await startFleet();
  client = await fleet.client();
  sandbox = await client.runContainer({ image: "busybox", memoryMb: 128, ttlRunningStop: 0 });
});

afterAll(async () => {
  await client.close();
  await fleet[Symbol.asyncDispose]();
});

const parrot =
  'while IFS= read -r line; do echo "got $line"; [ "$line" = die ] && exit 7; done; echo over; exit 3';

/** A command line whose output is collected as it comes. */
class Running {
  readonly child: ChildProcess;
  stdout = "";
  stderr = "";
  readonly ended: Promise<number | null>;

  constructor(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.child = fleet.spawn(argv, { env });
    this.child.stdout?.on("data", (chunk: Buffer) => (this.stdout += String(chunk)));
    this.child.stderr?.on("data", (chunk: Buffer) => (this.stderr += String(chunk)));
    this.ended = once(this.child, "close").then(([code]) => code as number | null);
  }

  type(text: string): void {
    this.child.stdin?.write(text);
  }

  async shows(text: string): Promise<void> {
    await vi.waitUntil(() => this.stdout.includes(text), { timeout: 20_000 });
  }
}

/** Starts a detached command that waits for its stdin. @returns its exec id */
async function startParrot(): Promise<string> {
  const { code, stdout } = await fleet.dsec(["exec", "-d", "-i", sandbox.id, "--", "sh", "-c", parrot]);
  expect(code).toBe(0);
  return stdout.trim();
}

describe("dsec attach", () => {
  test("types into a detached command, shows what it writes, and ends with its code", async () => {
    const exec = await startParrot();
    const attached = new Running(["attach", "-i", sandbox.id, exec]);
    attached.type("one\n");
    await attached.shows("got one\n");
    attached.type("die\n");
    expect(await attached.ended).toBe(7);
    expect(attached).toMatchObject({ stdout: "got one\ngot die\n", stderr: "" });
  });

  test("without an exec takes the newest that runs; ctrl-c leaves it running, for the next", async () => {
    const exec = await startParrot();
    const watcher = new Running(["attach", "--from-start", sandbox.id]);
    const first = new Running(["attach", "-i", sandbox.id]);
    first.type("one\n");
    await Promise.all([first.shows("got one\n"), watcher.shows("got one\n")]);
    first.child.kill("SIGINT");
    expect(await first.ended).toBe(130);
    const second = new Running(["attach", "-i", "--from-start", sandbox.id, exec]);
    second.type("two\n");
    await Promise.all([second.shows("got one\ngot two\n"), watcher.shows("got two\n")]);
    second.child.stdin?.end();
    expect(await second.ended).toBe(3);
    expect(await watcher.ended).toBe(3);
    expect(watcher.stdout).toBe("got one\ngot two\nover\n");
  });

  test("hands signals on where that is asked for", async () => {
    await startParrot();
    const attached = new Running(["attach", "-i", "--sig-proxy", sandbox.id]);
    attached.type("one\n");
    await attached.shows("got one\n");
    attached.child.kill("SIGTERM");
    expect(await attached.ended).toBe(143);
    expect((await sandbox.execs()).at(-1)).toMatchObject({ state: "exited", exit: { signal: "SIGTERM" } });
  });

  test("a second one that wants to type is refused by name", async () => {
    const exec = await startParrot();
    const first = new Running(["attach", "-i", sandbox.id, exec]);
    first.type("one\n");
    await first.shows("got one\n");
    const second = await fleet.dsec(["attach", "-i", sandbox.id, exec]);
    expect(second).toMatchObject({ code: 125, stdout: "" });
    expect(second.stderr).toContain("(stdin_taken)");
    first.child.stdin?.end();
    expect(await first.ended).toBe(3);
  });

  test.each([
    [["attach", "SANDBOX", "nothing"], "not_found"],
    [["attach", "nothing"], "not_found"],
  ])("%j is refused by name", async (argv, code) => {
    const result = await fleet.dsec(argv.map((word) => (word === "SANDBOX" ? sandbox.id : word)));
    expect(result.code).toBe(125);
    expect(result.stderr).toContain(`(${code})`);
  });

  test("a command that is not recorded cannot be followed", async () => {
    const plain = await sandbox.spawn(["sleep", "1000"]);
    const result = await fleet.dsec(["attach", sandbox.id, plain.execId]);
    expect(result.stderr).toContain("(unsupported)");
    plain.disconnect();
  });
});

describe("the death of the daemon", () => {
  test("spares a detached command: it is written to and followed after the restart, and nothing is lost", async () => {
    const exec = await startParrot();
    const before = new Running(["attach", "-i", sandbox.id, exec]);
    before.type("one\n");
    await before.shows("got one\n");
    await fleet.kill("SIGKILL");
    expect(await before.ended).toBe(125);
    expect(before.stderr).toContain("(connection_lost)");
    await fleet.restart();
    const after = new Running(["attach", "-i", "--from-start", sandbox.id, exec]);
    after.type("two\n");
    await after.shows("got two\n");
    after.child.stdin?.end();
    expect(await after.ended).toBe(3);
    expect(after.stdout).toBe("got one\ngot two\nover\n");
    const logs = await fleet.dsec(["logs", "--exec", exec, sandbox.id]);
    expect(logs.stdout).toBe("got one\ngot two\nover\n");
  });

  test("leaves the outcome of an attached command unknown: exit code 125, ambiguous", async () => {
    const attached = new Running(["exec", sandbox.id, "--", "sh", "-c", "echo begun; sleep 1000"], {
      DSEC_ERROR_FORMAT: "json",
    });
    await attached.shows("begun\n");
    await fleet.kill("SIGKILL");
    expect(await attached.ended).toBe(125);
    expect(JSON.parse(attached.stderr)).toMatchObject({ code: "connection_lost", ambiguous: true });
    await fleet.restart();
    // its client is gone, and so is it
    await expect.poll(async () => (await sandbox.refresh()).activeExecs, { timeout: 20_000 }).toBe(0);
  });
});

describe("dsec logs", () => {
  test("follows from the tail on, to the end", async () => {
    await sandbox.exec(["sh", "-c", "rm -f /tmp/go; mkfifo /tmp/go"]);
    const script = "seq 1 1000; read -r go < /tmp/go; echo last";
    const exec = await sandbox.execDetached(["sh", "-c", script]);
    const logs = new Running(["logs", "-f", "--tail", "2", "--exec", exec, sandbox.id]);
    await logs.shows("1000\n");
    await sandbox.exec(["sh", "-c", "echo > /tmp/go"]);
    expect(await logs.ended).toBe(0);
    expect(["999\n1000\nlast\n", "last\n"].some((text) => logs.stdout.endsWith(text))).toBe(true);
    expect(await fleet.dsec(["logs", "--tail", "3", "--exec", exec, sandbox.id])).toMatchObject({
      stdout: "999\n1000\nlast\n",
    });
  });

  test("leaves out what is older than --since", async () => {
    await sandbox.exec(["sh", "-c", "rm -f /tmp/go; mkfifo /tmp/go"]);
    const exec = await sandbox.execDetached(["sh", "-c", "echo old; read -r go < /tmp/go; echo new"]);
    const all = new Running(["logs", "-f", "--exec", exec, sandbox.id]);
    await all.shows("old\n");
    // at least a millisecond later
    const since = new Date(Date.now() + 1);
    await expect.poll(() => Date.now()).toBeGreaterThan(since.getTime());
    await sandbox.exec(["sh", "-c", "echo > /tmp/go"]);
    expect(await all.ended).toBe(0);
    expect(all.stdout).toBe("old\nnew\n");
    const argv = ["logs", "--since", since.toISOString(), "--exec", exec, sandbox.id];
    expect(await fleet.dsec(argv)).toMatchObject({ code: 0, stdout: "new\n" });
  });
});
