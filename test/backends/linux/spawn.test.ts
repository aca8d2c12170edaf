import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ProgramExit, spawnProgram } from "../../../src/backends/linux/spawn.ts";

let directory: string;
let nothing: number;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "dsec-spawn-"));
  nothing = openSync("/dev/null", "r+");
});

afterAll(() => {
  closeSync(nothing);
  rmSync(directory, { recursive: true });
});

/** Runs shell text; what it writes to stdout is the result. */
async function shell(text: string): Promise<{ exit: ProgramExit; stdout: string }> {
  const path = join(directory, "stdout");
  const out = openSync(path, "w");
  try {
    const program = await spawnProgram("/bin/sh", ["sh", "-c", text], { A: "b c" }, [nothing, out, nothing]);
    const exit = await program.exited;
    return { exit, stdout: readFileSync(path, "utf8") };
  } finally {
    closeSync(out);
  }
}

test.each([0, 1, 7, 127, 255])("exit code %i is told", async (code) => {
  expect((await shell(`exit ${code}`)).exit).toEqual({ code, signal: undefined });
});

test("a signal that ended the program is told by its name", async () => {
  expect((await shell("kill -TERM $$")).exit).toEqual({ code: undefined, signal: "SIGTERM" });
});

test("the program gets its arguments, its environment and nothing else", async () => {
  const { stdout } = await shell("tr '\\0' '\\n' < /proc/self/environ");
  expect(stdout.split("\n").filter(Boolean)).toEqual(["A=b c"]);
});

test("only the descriptors that were handed on are open in the program", async () => {
  const { stdout } = await shell("ls /proc/$$/fd");
  expect(stdout.split("\n").filter(Boolean)).toEqual(["0", "1", "2"]);
});

test("descriptors that have each other's targets arrive where they belong", async () => {
  const path = join(directory, "second");
  const out = openSync(path, "w");
  try {
    const argv = ["sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/2; echo to the second"];
    // 0 of this process becomes 2, and 2 becomes 0
    await (
      await spawnProgram("/bin/sh", argv, { PATH: "/bin:/usr/bin" }, [2, out, 0])
    ).exited;
    const [first, second, text] = readFileSync(path, "utf8").split("\n");
    expect([first, second, text]).toEqual([
      readlinkSync("/proc/self/fd/2"),
      readlinkSync("/proc/self/fd/0"),
      "to the second",
    ]);
  } finally {
    closeSync(out);
  }
});

test("SIGPIPE, which Node ignores, has its default in the program, and it leads its process group", async () => {
  const { stdout } = await shell("grep SigIgn /proc/$$/status; cut -d' ' -f1,5 /proc/$$/stat");
  const [ignored, ids] = stdout.split("\n");
  const sigpipe = 1n << 12n;
  expect(BigInt(`0x${ignored?.split("\t")[1]}`) & sigpipe).toBe(0n);
  const [pid, group] = ids?.split(" ") ?? [];
  expect(pid).toBe(group);
});

test("a program that is not there is an error with its errno", async () => {
  await expect(spawnProgram("/no/such/program", ["x"], {}, [nothing])).rejects.toThrowError(
    expect.objectContaining({ code: "ENOENT", syscall: "posix_spawn" }),
  );
});

test("fifty at once are each told their own end, beside programs that Node itself started", async () => {
  const own = spawn("/bin/sh", ["-c", "exit 3"]);
  const ends = Array.from({ length: 50 }, async (_, code) => {
    const program = await spawnProgram("/bin/sh", ["sh", "-c", `exit ${code}`], {}, [
      nothing,
      nothing,
      nothing,
    ]);
    return (await program.exited).code;
  });
  const [code] = (await once(own, "exit")) as [number];
  expect(code).toBe(3);
  expect(await Promise.all(ends)).toEqual(Array.from({ length: 50 }, (_, index) => index));
});
