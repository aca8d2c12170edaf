import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { maxFrameData } from "../../../src/daemon/exec/record-format.ts";
import type { ExecRecorder } from "../../../src/daemon/exec/recorder.ts";
import { type LogQuery, Recordings } from "../../../src/daemon/exec/recordings.ts";
import type { LogLine } from "../../../src/protocol/exec.ts";

const run = promisify(execFile);
const everything: LogQuery = { tail: undefined, since: undefined };

async function recordings(limits: { headBytes?: number; tailBytes?: number; now?: () => number } = {}) {
  const dir = await mkdtemp(join(tmpdir(), "dsec-recordings-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  const failures: unknown[] = [];
  const made = new Recordings({
    dir,
    headBytes: 1_048_576,
    tailBytes: 1_048_576,
    now: () => 1,
    failed: (error) => failures.push(error),
    ...limits,
  });
  return { made, dir: join(dir, "s", "e"), failures };
}

async function linesOf(
  made: Recordings,
  query: LogQuery = everything,
  recorder?: ExecRecorder,
): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  for await (const line of made.read("s", "e", query, recorder, new AbortController().signal))
    lines.push(line);
  return lines;
}

function textOf(lines: readonly LogLine[], stream?: "stdout" | "stderr"): string {
  return lines
    .flatMap((line) => (line.type === "output" && (stream ?? line.stream) === line.stream ? [line.data] : []))
    .map((data) => Buffer.from(data, "base64").toString("latin1"))
    .join("");
}

/** Appends to stdout, one chunk after the other. */
async function write(recorder: ExecRecorder, chunks: readonly string[]): Promise<void> {
  for (const chunk of chunks) await recorder.append("stdout", recorder.totals.stdout, Buffer.from(chunk));
}

test("what is recorded is read back in order, by stream, with its time", async () => {
  let now = 10;
  const { made } = await recordings({ now: () => now });
  const recorder = await made.create("s", "e");
  await recorder.append("stdout", 0, Buffer.from("one\n"));
  now = 20;
  await recorder.append("stderr", 0, Buffer.from("two\n"));
  now = 30;
  await recorder.append("stdout", 4, Buffer.from("three"));
  await recorder.close();
  expect(await linesOf(made)).toEqual([
    { type: "output", stream: "stdout", time: 10, data: Buffer.from("one\n").toString("base64") },
    { type: "output", stream: "stderr", time: 20, data: Buffer.from("two\n").toString("base64") },
    { type: "output", stream: "stdout", time: 30, data: Buffer.from("three").toString("base64") },
  ]);
  expect(textOf(await linesOf(made, { tail: undefined, since: 20 }))).toBe("two\nthree");
});

test("head and tail of output without end are kept, the gap is exact, and the disk stays bounded", async () => {
  const { made, dir } = await recordings({ headBytes: 10_000, tailBytes: 8_000 });
  const recorder = await made.create("s", "e");
  const written: string[] = [];
  for (let index = 0; index < 2000; index += 1) written.push(`line ${String(index).padStart(90, "0")}\n`);
  await write(recorder, written);
  await recorder.close();

  const files = await readdir(dir);
  const sizes = await Promise.all(files.map(async (file) => (await stat(join(dir, file))).size));
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(10_000 + 1.5 * 8_000 + 4 * 1000);

  const lines = await linesOf(made);
  const gaps = lines.filter((line) => line.type === "gap");
  const all = written.join("");
  const at = lines.findIndex((line) => line.type === "gap");
  const head = textOf(lines.slice(0, at));
  const tail = textOf(lines.slice(at));
  expect(gaps).toHaveLength(1);
  expect(all.startsWith(head)).toBe(true);
  expect(all.endsWith(tail)).toBe(true);
  expect(head.length).toBeGreaterThan(8000);
  expect(tail.length).toBeGreaterThan(6000);
  expect(gaps).toEqual([{ type: "gap", bytes: all.length - head.length - tail.length }]);
});

test.each([
  [0, ""],
  [1, "three\n"],
  [2, "two\nthree\n"],
  [3, "one\ntwo\nthree\n"],
  [100, "one\ntwo\nthree\n"],
])("the last %i lines are what tail shows", async (tail, expected) => {
  const { made } = await recordings();
  const recorder = await made.create("s", "e");
  await write(recorder, ["on", "e\ntwo", "\nthree\n"]);
  await recorder.close();
  expect(textOf(await linesOf(made, { tail, since: undefined }))).toBe(expected);
});

test("a last line without a newline counts as a line", async () => {
  const { made } = await recordings();
  const recorder = await made.create("s", "e");
  await write(recorder, ["one\ntwo\nthr", "ee"]);
  await recorder.close();
  expect(textOf(await linesOf(made, { tail: 2, since: undefined }))).toBe("two\nthree");
});

test("a chunk of any size and every byte value is kept as it is", async () => {
  const { made } = await recordings();
  const recorder = await made.create("s", "e");
  const bytes = Buffer.from(Array.from({ length: 3 * maxFrameData + 17 }, (_, index) => index % 256));
  await recorder.append("stderr", 0, bytes);
  await recorder.close();
  expect(textOf(await linesOf(made), "stderr")).toBe(bytes.toString("latin1"));
});

test("a follower sees what is written later, and ends when the recording does", async () => {
  const { made } = await recordings({ headBytes: 4096, tailBytes: 4096 });
  const recorder = await made.create("s", "e");
  await write(recorder, ["before\n"]);
  const followed: string[] = [];
  const sawFirst = Promise.withResolvers<void>();
  const following = (async () => {
    for await (const line of made.read("s", "e", everything, recorder, new AbortController().signal)) {
      followed.push(textOf([line]));
      sawFirst.resolve();
    }
  })();
  await sawFirst.promise;
  const later = Array.from({ length: 20 }, (_, index) => `after ${index}\n`);
  await write(recorder, later);
  await recorder.close();
  await following;
  expect(followed.join("")).toBe(`before\n${later.join("")}`);
});

test("a follower that goes away stops waiting", async () => {
  const { made } = await recordings();
  const recorder = await made.create("s", "e");
  const controller = new AbortController();
  const reading = made.read("s", "e", everything, recorder, controller.signal).next();
  controller.abort();
  expect(await reading).toEqual({ value: undefined, done: true });
  await recorder.close();
});

test("a recording goes on after a restart where its last whole frame ended", async () => {
  const { made, dir } = await recordings();
  const first = await made.create("s", "e");
  await write(first, ["kept\n", "cut off\n"]);
  await first.append("stderr", 0, Buffer.from("err\n"));
  await first.close();
  const { size } = await stat(join(dir, "0"));
  await truncate(join(dir, "0"), size - 2);

  const second = await made.reopen("s", "e");
  expect(second.totals).toEqual({ stdout: 13, stderr: 0 });
  await second.append("stderr", 0, Buffer.from("err\n"));
  // what was recorded already is sent again
  await second.append("stdout", 5, Buffer.from("cut off\nand on\n"));
  await second.close();
  const lines = await linesOf(made);
  expect(textOf(lines, "stdout")).toBe("kept\ncut off\nand on\n");
  expect(textOf(lines, "stderr")).toBe("err\n");
});

test("totals survive a restart also when most of the output was dropped", async () => {
  const { made } = await recordings({ headBytes: 4096, tailBytes: 4096 });
  const first = await made.create("s", "e");
  await first.append("stderr", 0, Buffer.from("early\n"));
  const chunk = "x".repeat(999);
  await write(
    first,
    Array.from({ length: 50 }, () => `${chunk}\n`),
  );
  await first.close();
  const second = await made.reopen("s", "e");
  expect(second.totals).toEqual({ stdout: 50_000, stderr: 6 });
  await second.close();
});

test("a piece that a full disk takes in part is not there, and nothing comes after it", async () => {
  const { made, dir, failures } = await recordings();
  await mkdir(dir, { recursive: true });
  await run("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", dir]);
  onTestFinished(async () => void (await run("umount", [dir])));
  const recorder = await made.create("s", "e");
  await write(recorder, ["a".repeat(40_000)]);
  await writeFile(join(dir, "ballast"), Buffer.alloc(12_288));
  await write(recorder, ["b".repeat(40_000)]);
  await rm(join(dir, "ballast"));
  await write(recorder, ["c".repeat(100)]);
  await recorder.close();
  expect(failures).toMatchObject([{ code: "disk_full" }]);
  expect(textOf(await linesOf(made))).toBe("a".repeat(40_000));
});

test("a disk that takes no more ends the recording, not the process that writes", async () => {
  const { made, dir, failures } = await recordings({ headBytes: 4096, tailBytes: 4096 });
  const recorder = await made.create("s", "e");
  // the next segment cannot be made
  await rm(dir, { recursive: true });
  await write(
    recorder,
    Array.from({ length: 10 }, () => "y".repeat(1000)),
  );
  expect(recorder.totals.stdout).toBe(10_000);
  await recorder.close();
  expect(failures).toHaveLength(1);
});
