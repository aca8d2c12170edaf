import { createHash, randomBytes } from "node:crypto";
import { execFileSync } from "node:child_process";
import {
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { setImmediate } from "node:timers/promises";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import type { GuestFiles, GuestWriteOptions } from "../../src/agent/guest.ts";
import { type RunningAgent, shareAgent } from "./agent-fixture.ts";
import { childrenOf } from "./process-state.ts";

const POLL = { timeout: 20_000, interval: 10 };
let agent: RunningAgent;
let connection: AgentConnection;
let files: GuestFiles;
let root: string;

shareAgent((...made) => {
  [agent, connection] = made;
  files = connection.files;
});

beforeEach(() => {
  root = agent.newDirectory();
});

async function* chunks(...parts: (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const part of parts) yield Buffer.from(part);
}

function write(path: string, content: string | Buffer, options: GuestWriteOptions = {}): Promise<void> {
  return files.write(path, chunks(content), options);
}

async function read(
  path: string | Buffer,
  range: { offset?: number; length?: number } = {},
): Promise<Buffer> {
  const parts: Buffer[] = [];
  await files.read(path, range, (chunk) => void parts.push(Buffer.from(chunk)));
  return Buffer.concat(parts);
}

function sha256(content: string | Buffer): Buffer {
  return createHash("sha256").update(content).digest();
}

describe("writing", () => {
  test("20 MB arrive whole, checked by size and hash, with mode and owner", async () => {
    const content = randomBytes(20_000_000);
    const parts = Array.from({ length: 200 }, (_, i) => content.subarray(i * 100_000, (i + 1) * 100_000));
    const options = { size: content.length, sha256: sha256(content), mode: 0o4751, uid: 12, gid: 34 };
    await files.write(`${root}/f`, chunks(...parts), options);
    expect(sha256(readFileSync(`${root}/f`))).toEqual(options.sha256);
    const { mode, uid, gid } = statSync(`${root}/f`);
    expect([mode & 0o7777, uid, gid]).toEqual([0o4751, 12, 34]);
    expect(readdirSync(root)).toEqual(["f"]);
  });

  test("hashes of all lengths around the block size agree", async () => {
    for (const length of [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000]) {
      const content = randomBytes(length);
      await write(`${root}/f`, content, { sha256: sha256(content) });
      expect(readFileSync(`${root}/f`)).toEqual(content);
    }
  });

  test("gives the file the time that it is told, before 1970, too", async () => {
    for (const mtimeMs of [1_234_567_890_250, -1500.5, -2000]) {
      await write(`${root}/f`, "content", { mtimeMs });
      expect(statSync(`${root}/f`).mtimeMs).toBeCloseTo(mtimeMs, 2);
    }
  });

  test.for([
    ["a wrong hash", { sha256: sha256("other") }, "file_error"],
    ["too few bytes", { size: 100 }, "file_error"],
    ["too many bytes", { size: 3 }, "file_error"],
  ] as const)("with %s leaves what was there, and nothing else", async ([, options, code]) => {
    writeFileSync(`${root}/f`, "old");
    await expect(write(`${root}/f`, "content", options)).rejects.toMatchObject({ code });
    expect(readdirSync(root)).toEqual(["f"]);
    expect(readFileSync(`${root}/f`, "utf8")).toBe("old");
  });

  test("that breaks off leaves nothing", async () => {
    async function* broken(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(100_000);
      throw new Error("the source broke");
    }
    await expect(files.write(`${root}/f`, broken(), {})).rejects.toThrow("the source broke");
    await vi.waitFor(() => expect(readdirSync(root)).toEqual([]), POLL);
    await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  });

  test("that is cut off with the connection leaves nothing, and is ambiguous", async () => {
    const gate = Promise.withResolvers<void>();
    const half = Promise.withResolvers<void>();
    async function* content(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(100_000);
      half.resolve();
      await gate.promise;
    }
    const writing = files.write(`${root}/f`, content(), {});
    const failed = writing.catch((error: unknown) => error);
    await half.promise;
    await vi.waitFor(() => expect(readdirSync(root)).toMatchObject([/^\.dsec-/]), POLL);
    connection = await agent.connect();
    files = connection.files;
    gate.resolve();
    expect(await failed).toMatchObject({ code: "agent_lost", ambiguous: true });
    await vi.waitFor(() => expect(readdirSync(root)).toEqual([]), POLL);
  });

  test("keeps the mode and owner of the file it replaces", async () => {
    writeFileSync(`${root}/f`, "old", { mode: 0o600 });
    chownSync(`${root}/f`, 7, 8);
    await write(`${root}/f`, "new");
    const { mode, uid, gid } = statSync(`${root}/f`);
    expect([mode & 0o7777, uid, gid, readFileSync(`${root}/f`, "utf8")]).toEqual([0o600, 7, 8, "new"]);
  });

  test("through a symlink replaces what it points to, and makes it where it dangles", async () => {
    mkdirSync(`${root}/d`);
    symlinkSync("d/target", `${root}/relative`);
    symlinkSync(`${root}/relative`, `${root}/absolute`);
    await write(`${root}/absolute`, "one");
    expect(readFileSync(`${root}/d/target`, "utf8")).toBe("one");
    await write(`${root}/relative`, "two");
    expect(readFileSync(`${root}/d/target`, "utf8")).toBe("two");
    expect(lstatSync(`${root}/relative`).isSymbolicLink()).toBe(true);
    symlinkSync("loop", `${root}/loop`);
    await expect(write(`${root}/loop`, "x")).rejects.toMatchObject({ details: { errno: "ELOOP" } });
  });

  test("to a directory, a FIFO, a device or a missing directory is refused at once", async () => {
    execFileSync("mkfifo", [`${root}/fifo`]);
    symlinkSync("fifo", `${root}/link`);
    const cases = [
      [root, "EISDIR"],
      [`${root}/fifo`, "EINVAL"],
      [`${root}/link`, "EINVAL"],
      ["/dev/null", "EINVAL"],
      [`${root}/no/f`, "ENOENT"],
      [`${root}/..`, "EINVAL"],
      ["/", "EBUSY"],
    ] as const;
    for (const [path, errno] of cases) {
      await expect(write(path, "x")).rejects.toMatchObject({ code: "file_error", details: { errno, path } });
    }
    expect(readdirSync(root).sort()).toEqual(["fifo", "link"]);
  });
});

describe("reading", () => {
  test("gives what the file holds and its description, with a slow reader", async () => {
    const content = randomBytes(10_000_000);
    writeFileSync(`${root}/f`, content, { mode: 0o640 });
    const hash = createHash("sha256");
    const info = await files.read(`${root}/f`, {}, async (chunk) => {
      await setImmediate();
      hash.update(chunk);
    });
    expect(hash.digest()).toEqual(sha256(content));
    expect(info).toMatchObject({ type: "file", mode: 0o640, size: content.length, uid: 0, gid: 0 });
    expect(info.mtimeMs).toBe(Math.floor(statSync(`${root}/f`).mtimeMs));
  });

  test("gives a range", async () => {
    writeFileSync(`${root}/f`, "0123456789");
    expect(String(await read(`${root}/f`, { offset: 3, length: 4 }))).toBe("3456");
    expect(String(await read(`${root}/f`, { offset: 8, length: 40 }))).toBe("89");
    expect(String(await read(`${root}/f`, { offset: 100 }))).toBe("");
    expect(String(await read(`${root}/f`, { offset: 2 ** 50 + 1 }))).toBe("");
    expect(String(await read(`${root}/f`, { length: 0 }))).toBe("");
  });

  test("a FIFO, a device, a directory, a socket or nothing is refused at once", async () => {
    execFileSync("mkfifo", [`${root}/fifo`]);
    const cases = [
      [`${root}/fifo`, "EINVAL"],
      ["/dev/zero", "EINVAL"],
      ["/dev/tty", "EINVAL"],
      [`${agent.directory}/s`, "EINVAL"],
      [root, "EISDIR"],
      [`${root}/no`, "ENOENT"],
      [`${agent.directory}/s/x`, "ENOTDIR"],
    ] as const;
    for (const [path, errno] of cases) {
      const reading = files.read(path, {}, () => {});
      await expect(reading).rejects.toMatchObject({ code: "file_error", details: { errno, path } });
    }
  });

  test("does not follow the magic links of /proc", async () => {
    const reading = read(`/proc/${process.pid}/root${root}`);
    await expect(reading).rejects.toMatchObject({ details: { errno: "ELOOP" } });
    await expect(read("/proc/self/fd/1")).rejects.toMatchObject({ details: { errno: "ELOOP" } });
  });

  test("whose sink fails ends with its error, and stops inside", async () => {
    writeFileSync(`${root}/f`, Buffer.alloc(5_000_000));
    const reading = files.read(`${root}/f`, {}, () => Promise.reject(new Error("no room")));
    await expect(reading).rejects.toThrow("no room");
    await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  });
});

describe("describing", () => {
  test("follows the last symlink or not, as asked", async () => {
    writeFileSync(`${root}/f`, "12345");
    symlinkSync("f", `${root}/link`);
    expect(await files.stat(`${root}/link`, { followSymlink: true })).toMatchObject({
      type: "file",
      size: 5,
    });
    const link = await files.stat(`${root}/link`, { followSymlink: false });
    expect(link).toMatchObject({
      type: "symlink",
      linkTarget: Buffer.from("f"),
      name: Buffer.from(`${root}/link`),
    });
  });

  test("a listing has every entry of every type, also names that are not UTF-8", async () => {
    const odd = Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff, 0x0a, 0x20, 0xc3])]);
    writeFileSync(odd, "odd");
    mkdirSync(`${root}/dir`);
    symlinkSync("/no/where", `${root}/link`);
    execFileSync("mkfifo", [`${root}/fifo`]);
    const list = await files.list(root);
    const byName = new Map(list.map((entry) => [entry.name.toString("latin1"), entry]));
    expect([...byName.keys()].sort()).toEqual(["dir", "fifo", "link", "\xff\n \xc3"]);
    expect(byName.get("link")).toMatchObject({ type: "symlink", linkTarget: Buffer.from("/no/where") });
    expect(byName.get("dir")).toMatchObject({ type: "directory", mode: 0o755 });
    expect(byName.get("fifo")).toMatchObject({ type: "fifo" });
    expect(String(await read(odd))).toBe("odd");
    expect(await files.list(`${root}/dir`)).toEqual([]);
    await expect(files.list(odd)).rejects.toMatchObject({ details: { errno: "ENOTDIR" } });
  });

  test("a listing of more than fits memory is refused, and costs nothing else", async () => {
    const target = "t".repeat(4000);
    for (let index = 0; index < 8500; index += 1) symlinkSync(target, `${root}/${index}`);
    await expect(files.list(root)).rejects.toMatchObject({
      code: "output_too_large",
      details: { path: root },
    });
    await connection.ping();
    await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  });

  test("a listing of 5,000 entries with long names and links is whole", async () => {
    const names = Array.from({ length: 5000 }, (_, i) => `${i}`.padEnd(200, "n"));
    for (const name of names) symlinkSync("t".repeat(500), `${root}/${name}`);
    const list = await files.list(root);
    expect(list.map(({ name }) => String(name)).sort()).toEqual(names.sort());
    expect(list.every(({ linkTarget }) => linkTarget?.length === 500)).toBe(true);
    await files.remove(root, { recursive: true });
    expect(existsSync(root)).toBe(false);
  });
});

describe("changing the tree", () => {
  test("mkdir makes one directory, or all of a path, with the asked mode", async () => {
    await files.mkdir(`${root}/a`, { parents: false, mode: 0o2770 });
    expect(statSync(`${root}/a`).mode & 0o7777).toBe(0o2770);
    await files.mkdir(`${root}/b/c//d/`, { parents: true, mode: 0o700 });
    expect([statSync(`${root}/b`), statSync(`${root}/b/c/d`)].map(({ mode }) => mode & 0o7777)).toEqual([
      0o755, 0o700,
    ]);
    await files.mkdir(`${root}/b/c`, { parents: true });
    await files.mkdir("/", { parents: true });
    const again = files.mkdir(`${root}/a`, { parents: false });
    await expect(again).rejects.toMatchObject({ details: { errno: "EEXIST" } });
    const missing = files.mkdir(`${root}/x/y`, { parents: false });
    await expect(missing).rejects.toMatchObject({ details: { errno: "ENOENT" } });
    writeFileSync(`${root}/f`, "");
    const file = files.mkdir(`${root}/f`, { parents: true });
    await expect(file).rejects.toMatchObject({ details: { errno: "ENOTDIR" } });
  });

  test("remove takes a file, a symlink itself, an empty directory; more only when recursive", async () => {
    mkdirSync(`${root}/full/sub`, { recursive: true });
    mkdirSync(`${root}/kept`);
    writeFileSync(`${root}/kept/f`, "");
    symlinkSync("../kept", `${root}/full/link`);
    writeFileSync(`${root}/full/sub/f`, "");
    const refused = files.remove(`${root}/full`, { recursive: false });
    await expect(refused).rejects.toMatchObject({ details: { errno: "ENOTEMPTY" } });
    await files.remove(`${root}/full`, { recursive: true });
    expect(readdirSync(root)).toEqual(["kept"]);
    expect(readdirSync(`${root}/kept`)).toEqual(["f"]);
    symlinkSync("kept", `${root}/link`);
    await files.remove(`${root}/link`, { recursive: true });
    await files.remove(`${root}/kept/f`, { recursive: false });
    await files.remove(`${root}/kept`, { recursive: false });
    expect(readdirSync(root)).toEqual([]);
    const missing = files.remove(`${root}/no`, { recursive: true });
    await expect(missing).rejects.toMatchObject({ details: { errno: "ENOENT" } });
    await expect(files.remove("/", { recursive: true })).rejects.toMatchObject({
      details: { errno: "EBUSY" },
    });
    const dots = files.remove(`${root}/..`, { recursive: true });
    await expect(dots).rejects.toMatchObject({ details: { errno: "EINVAL" } });
  });

  test("remove goes as deep as a tree is", async () => {
    const script = 'for (1..3000) { mkdir "d"; open(F, ">f"); close(F); chdir("d") or die }';
    execFileSync("perl", ["-e", script], { cwd: root });
    await files.remove(root, { recursive: true });
    expect(existsSync(root)).toBe(false);
  });

  test("rename moves and replaces", async () => {
    writeFileSync(`${root}/a`, "a");
    writeFileSync(`${root}/b`, "b");
    await files.rename(`${root}/a`, `${root}/b`);
    expect([readdirSync(root), readFileSync(`${root}/b`, "utf8")]).toEqual([["b"], "a"]);
    const missing = files.rename(`${root}/a`, `${root}/c`);
    await expect(missing).rejects.toMatchObject({ details: { errno: "ENOENT" } });
  });

  test("paths that are none are refused before anything is sent", async () => {
    for (const path of ["", "relative", "/a\0b", `/${"x".repeat(5000)}`]) {
      await expect(files.remove(path, { recursive: true })).rejects.toMatchObject({
        code: "invalid_argument",
      });
    }
  });

  test("100 operations at once all end, and leave no process", async () => {
    await Promise.all(
      Array.from({ length: 100 }, (_, i) => write(`${root}/${i}`, String(i), { mode: 0o600 })),
    );
    const contents = await Promise.all(Array.from({ length: 100 }, (_, i) => read(`${root}/${i}`)));
    expect(contents.map(String)).toEqual(Array.from({ length: 100 }, (_, i) => String(i)));
    await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  });
});
