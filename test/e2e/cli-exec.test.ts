import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Fleet, startFleet } from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";

let fleet: Fleet;
let id: string;

beforeAll(async () => {
  fleet = await startFleet();
  const made = await fleet.dsec(["run", "-q", ...sandboxFlags]);
  id = made.stdout.trim();
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
});

describe("the exit code of a command", () => {
  test.each([0, 1, 2, 7, 100, 124, 125, 126, 127, 128, 200, 254, 255])("%i passes through", async (code) => {
    const result = await fleet.dsec(["exec", id, "--", "sh", "-c", `exit ${code}`]);
    expect(result).toMatchObject({ code, stdout: "", stderr: "" });
  });

  test.each([
    [15, 143],
    [9, 137],
    [11, 139],
  ])("is 128 + the number of a signal: %s", async (signal, code) => {
    expect((await fleet.dsec(["exec", id, "--", "sh", "-c", `kill -${signal} $$`])).code).toBe(code);
  });

  test("is 124 when its time was up, and what it wrote until then is there", async () => {
    const result = await fleet.dsec([
      "exec",
      "--timeout",
      "300ms",
      id,
      "--",
      "sh",
      "-c",
      "echo before; sleep 100",
    ]);
    expect(result).toMatchObject({ code: 124, stdout: "before\n" });
    expect(result.stderr).toContain("its time was up");
  });

  test("is the command's own of a sandbox that was made for it", async () => {
    const result = await fleet.dsec(["run", ...sandboxFlags, "--", "sh", "-c", "exit 7"]);
    expect(result).toMatchObject({ code: 7, stdout: "" });
  });
});

describe("argv", () => {
  test("is passed on exactly as given: no joining, no second shell", async () => {
    const { code, stdout } = await fleet.dsec(["exec", id, "--", "printf", "%s|", "a", "b c", "", "$HOME;*"]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "a|b c||$HOME;*|" });
  });

  test("may look like flags of ours", async () => {
    const { stdout } = await fleet.dsec(["exec", id, "echo", "-o", "json", "--help", "--"]);
    expect(stdout).toBe("-o json --help --\n");
  });
});

describe("streams", () => {
  test("stdout and stderr stay apart", async () => {
    const result = await fleet.dsec(["exec", id, "--", "sh", "-c", "echo out; echo err >&2"]);
    expect(result).toMatchObject({ code: 0, stdout: "out\n", stderr: "err\n" });
  });

  test("10 MB go in and come out byte for byte", async () => {
    const sent = randomBytes(10_000_000);
    const result = await fleet.dsec(["exec", "-i", id, "--", "cat"], { stdin: sent });
    expect(result.code).toBe(0);
    expect(result.stdoutBytes.equals(sent)).toBe(true);
  });

  test("stdin is null unless -i is given", async () => {
    const result = await fleet.dsec(["exec", id, "--", "cat"], { stdin: "not for it" });
    expect(result).toMatchObject({ code: 0, stdout: "" });
  });

  test("a reader that goes away ends an endless command, quietly", async () => {
    const yes = fleet.spawn(["exec", id, "--", "yes"]);
    const stderr: Buffer[] = [];
    yes.stderr?.on("data", (chunk: Buffer) => stderr.push(chunk));
    if (yes.stdout === null) throw new Error("no stdout");
    await once(yes.stdout, "data");
    yes.stdout.destroy();
    const [code] = await once(yes, "exit");
    expect({ code, stderr: Buffer.concat(stderr).toString() }).toEqual({ code: 141, stderr: "" });
  });
});

describe("signals", () => {
  test("Ctrl-C goes to the command, whose exit code then tells of it", async () => {
    const sleeping = fleet.spawn(["exec", id, "--", "sh", "-c", "echo ready; sleep 1000"]);
    if (sleeping.stdout === null) throw new Error("no stdout");
    await once(sleeping.stdout, "data");
    sleeping.kill("SIGINT");
    const [code] = await once(sleeping, "exit");
    expect(code).toBe(130);
  });

  test("SIGTERM during `run` ends command and sandbox", async () => {
    const running = fleet.spawn([
      "run",
      "--name",
      "signalled",
      ...sandboxFlags,
      "--",
      "sh",
      "-c",
      "echo ready; sleep 1000",
    ]);
    if (running.stdout === null) throw new Error("no stdout");
    await once(running.stdout, "data");
    running.kill("SIGTERM");
    const [code] = await once(running, "exit");
    expect(code).toBe(143);
    const [sandbox] = JSON.parse((await fleet.dsec(["inspect", "signalled"])).stdout);
    expect(sandbox).toMatchObject({ state: "stopped", endReason: "exited", exitCode: 143 });
  });
});

describe("environment and user", () => {
  test("-e and --env-file reach the command; a flag goes before the file, a bare name takes the value here", async () => {
    const { writeFile } = await import("node:fs/promises");
    const file = `${fleet.dataDir}/env`;
    await writeFile(file, "# comment\nA=file\nB=file\n");
    const argv = ["exec", "--env-file", file, "-e", "A=flag", "-e", "FROM_HERE", id, "--", "env"];
    const { stdout } = await fleet.dsec(argv, { env: { FROM_HERE: "yes" } });
    expect(stdout.split("\n")).toEqual(expect.arrayContaining(["A=flag", "B=file", "FROM_HERE=yes"]));
  });

  test("-w and -u choose directory and user", async () => {
    expect((await fleet.dsec(["exec", "-w", "/tmp", id, "--", "pwd"])).stdout).toBe("/tmp\n");
    expect((await fleet.dsec(["exec", "-u", "1000:1000", id, "--", "id", "-u"])).stdout).toBe("1000\n");
  });
});

describe("detached commands", () => {
  test("exec -d prints an id by which the output can be read afterwards", async () => {
    const started = await fleet.dsec(["exec", "-d", id, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    expect(started.code).toBe(0);
    const execId = started.stdout.trim();
    const logs = await fleet.dsec(["logs", "-f", "--exec", execId, id]);
    expect(logs).toMatchObject({ code: 0, stdout: "out\n", stderr: "err\n" });
    const [record] = JSON.parse((await fleet.dsec(["logs", "--execs", "-o", "json", id])).stdout).filter(
      (exec: { readonly id: string }) => exec.id === execId,
    );
    expect(record).toMatchObject({ state: "exited", exit: { exitCode: 3 } });
  });
});
