import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { beforeEach, describe, expect, test } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import type { GuestArchiveResult, GuestExtractOptions } from "../../src/agent/guest.ts";
import { readTar } from "../../src/protocol/tar-decode.ts";
import { type RunningAgent, shareAgent } from "./agent-fixture.ts";
import { inParts, tarOf } from "../protocol/tar-fixture.ts";
import { described, plantTree } from "./archive-fixture.ts";

let agent: RunningAgent;
let connection: AgentConnection;
let root: string;

shareAgent((...made) => {
  [agent, connection] = made;
});

beforeEach(() => {
  root = agent.newDirectory();
});

async function archive(
  path: string,
  name = "tree",
): Promise<{ readonly bytes: Buffer; readonly result: GuestArchiveResult }> {
  const parts: Buffer[] = [];
  const options = { name: Buffer.from(name), followSymlink: false };
  const result = await connection.files.archive(
    path,
    options,
    (chunk) => void parts.push(Buffer.from(chunk)),
  );
  return { bytes: Buffer.concat(parts), result };
}

function extract(
  path: string,
  bytes: Buffer,
  options: Partial<GuestExtractOptions> = {},
): Promise<GuestArchiveResult> {
  return connection.files.extract(path, inParts(bytes), { owners: true, ...options });
}

/** `done`, or the error's code. */
function outcomeOf(extracting: Promise<unknown>): Promise<string> {
  return extracting.then(
    () => "done",
    (error: { code: string }) => error.code,
  );
}

describe("a tree", () => {
  test("comes back as it was: modes, owners, links, holes, empty folders, odd and long names, times", async () => {
    mkdirSync(`${root}/from`);
    mkdirSync(`${root}/to`);
    plantTree(`${root}/from`);
    const { bytes, result } = await archive(`${root}/from`);
    await extract(`${root}/to`, bytes);
    expect(described(`${root}/to/tree`)).toBe(described(`${root}/from`));
    expect(readFileSync(`${root}/to/tree/large`).equals(readFileSync(`${root}/from/large`))).toBe(true);
    expect(statSync(`${root}/to/tree/set-id`).ino).toBe(statSync(`${root}/to/tree/sub/second name`).ino);
    expect(statSync(`${root}/to/tree/sparse`).blocks).toBeLessThan(64);
    expect(result).toMatchObject({ skipped: [], skippedCount: 0, entries: 11 });
  });

  test("is an archive that tar reads, and takes one that tar made in any of its formats", async () => {
    mkdirSync(`${root}/from`);
    plantTree(`${root}/from`);
    mkdirSync(`${root}/by-tar`);
    writeFileSync(`${root}/a.tar`, (await archive(`${root}/from`, ".")).bytes);
    execFileSync("tar", ["-xpf", `${root}/a.tar`, "-C", `${root}/by-tar`, "--numeric-owner"]);
    expect(described(`${root}/by-tar`)).toBe(described(`${root}/from`));
    const wholeSeconds = (text: string): string => text.replaceAll(/\|(\d+)\.\d+\|/g, "|$1|");
    for (const format of ["posix", "gnu", "oldgnu"]) {
      const made = execFileSync("tar", ["-c", `--format=${format}`, "-C", `${root}/from`, "."], {
        maxBuffer: 1 << 26,
      });
      mkdirSync(`${root}/${format}`);
      await extract(`${root}/${format}`, made);
      const tree = wholeSeconds(described(`${root}/${format}`));
      expect({ format, tree }).toEqual({ format, tree: wholeSeconds(described(`${root}/from`)) });
    }
  });

  test("without its owners belongs to whom it is said to, and has no set-id bits", async () => {
    const bytes = tarOf(
      ["d", { type: "directory", mode: 0o2755, uid: 5 }],
      ["d/f", { mode: 0o4755, uid: 5, content: "x" }],
      ["missing/f", { uid: 5 }],
    );
    await extract(root, bytes, { owners: false, uid: 21, gid: 22 });
    const seen = ["d", "d/f", "missing", "missing/f"].map((name) => statSync(`${root}/${name}`));
    expect(seen.map(({ uid, gid, mode }) => [uid, gid, mode & 0o7777])).toEqual([
      [21, 22, 0o755],
      [21, 22, 0o755],
      [21, 22, 0o755],
      [21, 22, 0o644],
    ]);
  });

  test("goes into what is there: directories are joined and keep what they are, files are replaced", async () => {
    mkdirSync(`${root}/d`, { mode: 0o700 });
    writeFileSync(`${root}/d/kept`, "kept");
    writeFileSync(`${root}/d/f`, "old");
    symlinkSync("kept", `${root}/d/link`);
    const bytes = tarOf(
      ["d/", { type: "directory", mode: 0o755 }],
      ["d/f", { content: "new" }],
      ["d/link", { content: "a file" }],
    );
    await extract(root, bytes, { owners: false });
    expect(statSync(`${root}/d`).mode & 0o777).toBe(0o700);
    expect(["kept", "f", "link"].map((name) => readFileSync(`${root}/d/${name}`, "utf8"))).toEqual([
      "kept",
      "new",
      "a file",
    ]);
    expect(lstatSync(`${root}/d/link`).isFile()).toBe(true);
  });

  test("leaves out devices, FIFOs and sockets, and says so", async () => {
    execFileSync("mkfifo", [`${root}/fifo`]);
    execFileSync("mknod", [`${root}/null`, "c", "1", "3"]);
    const { bytes, result } = await archive(root);
    const names = [];
    for await (const { name } of readTar(inParts(bytes))) names.push(name.toString());
    expect(names).toEqual(["tree/"]);
    expect(result.skipped.map(({ path, errno }) => `${path.toString()} ${errno}`).sort()).toEqual([
      "tree/fifo ENOTSUP",
      "tree/null ENOTSUP",
    ]);
    const device = tarOf(["null", { type: "character" }], ["f", { content: "x" }]);
    expect(await extract(root, device)).toMatchObject({ entries: 1, skippedCount: 1 });
    expect(readFileSync(`${root}/f`, "utf8")).toBe("x");
  });

  test("with a thousand FIFOs is told by its first ones and their number", async () => {
    execFileSync(
      "mkfifo",
      Array.from({ length: 1000 }, (_, i) => `${root}/f${i}`),
    );
    const { result } = await archive(root);
    expect([result.skipped.length, result.skippedCount]).toEqual([100, 1000]);
  });

  test("of 5,000 small files goes both ways", async () => {
    mkdirSync(`${root}/from`);
    for (let i = 0; i < 5000; i++) writeFileSync(`${root}/from/${i}`, String(i));
    mkdirSync(`${root}/to`);
    const { bytes, result } = await archive(`${root}/from`);
    expect(result.entries).toBe(5001);
    await extract(`${root}/to`, bytes);
    expect(described(`${root}/to/tree`)).toBe(described(`${root}/from`));
  });

  test("one file or symlink is an archive of one member", async () => {
    writeFileSync(`${root}/f`, "content");
    symlinkSync("f", `${root}/link`);
    const members: string[] = [];
    for (const [path, followSymlink] of [
      ["f", false],
      ["link", false],
      ["link", true],
    ] as const) {
      const parts: Buffer[] = [];
      await connection.files.archive(
        `${root}/${path}`,
        { name: Buffer.from("n"), followSymlink },
        (chunk) => void parts.push(Buffer.from(chunk)),
      );
      for await (const { type, size } of readTar(inParts(Buffer.concat(parts))))
        members.push(`${type} ${size}`);
    }
    expect(members).toEqual(["file 7", "symlink 0", "file 7"]);
  });

  test("of made-up file systems only the mount points are taken", async () => {
    const { bytes, result } = await archive("/proc", "proc");
    expect(bytes.length).toBeLessThan(4096);
    expect(result.skipped).toEqual([{ path: Buffer.from("proc/"), errno: "ENOTSUP" }]);
  });
});

describe("an archive that means harm", () => {
  test.for([
    ["a name with ..", [["../out", { content: "x" }]], "EINVAL"],
    ["a name with .. in the middle", [["a/../../out", { content: "x" }]], "EINVAL"],
    ["an absolute name", [["/tmp/out", { content: "x" }]], "EINVAL"],
    ["an empty name", [["", { content: "x" }]], "EINVAL"],
    ["the directory itself as a symlink", [["./", { type: "symlink", link: "x" }]], "EINVAL"],
    [
      "a symlink, then a file through it",
      [
        ["s", { type: "symlink", link: ".." }],
        ["s/out", { content: "x" }],
      ],
      "ENOTDIR",
    ],
    [
      "a symlink, then a directory in its place",
      [
        ["s", { type: "symlink", link: "../elsewhere" }],
        ["s", { type: "directory" }],
      ],
      "ENOTDIR",
    ],
    [
      "a chain of symlinks",
      [
        ["a", { type: "directory" }],
        ["a/b", { type: "symlink", link: "../.." }],
        ["c", { type: "symlink", link: "a/b" }],
        ["c/out", { content: "x" }],
      ],
      "ENOTDIR",
    ],
    ["a hard link to what is outside", [["l", { type: "link", link: "../secret" }]], "EINVAL"],
    ["a hard link to an absolute name", [["l", { type: "link", link: "/etc/passwd" }]], "EINVAL"],
    [
      "a hard link through a symlink",
      [
        ["s", { type: "symlink", link: ".." }],
        ["l", { type: "link", link: "s/secret" }],
      ],
      "ENOTDIR",
    ],
    ["a file in the place of a directory", [["there", { content: "x" }]], "EISDIR"],
  ] as const)("is refused: %s", async ([, members, errno]) => {
    mkdirSync(`${root}/in/there`, { recursive: true });
    mkdirSync(`${root}/elsewhere`);
    writeFileSync(`${root}/secret`, "secret");
    const before = described(`${root}/elsewhere`) + readFileSync(`${root}/secret`, "utf8");
    const refused = extract(`${root}/in`, tarOf(...members));
    await expect(refused).rejects.toMatchObject({ code: "file_error", details: { errno } });
    expect(readdirSync(root).sort()).toEqual(["elsewhere", "in", "secret"]);
    expect(described(`${root}/elsewhere`) + readFileSync(`${root}/secret`, "utf8")).toBe(before);
    expect(readdirSync(`${root}/in`).filter((name) => name.startsWith(".dsec"))).toEqual([]);
    expect(statSync(`${root}/secret`).nlink).toBe(1);
  });

  test("a symlink that is planted while it is taken apart leads nowhere", async () => {
    mkdirSync(`${root}/in/d`, { recursive: true });
    mkdirSync(`${root}/elsewhere`);
    const stop = new AbortController();
    // d is a directory and a symlink by turns; what others make in between is moved away whole
    const swapping = (async () => {
      for (let turn = 0; !stop.signal.aborted; turn++) {
        renameSync(`${root}/in/d`, `${root}/was${turn}`);
        if (turn % 2) mkdirSync(`${root}/in/d`);
        else symlinkSync("../elsewhere", `${root}/in/d`);
        await new Promise(setImmediate);
      }
    })().catch((error: NodeJS.ErrnoException) => error.code);
    const bytes = tarOf(
      ...Array.from({ length: 40 }, (_, i) => [i % 2 ? `d/f${i}` : `g/f${i}`, { content: "x" }] as const),
    );
    const outcomes = new Set<string>();
    for (let round = 0; round < 50; round++) outcomes.add(await outcomeOf(extract(`${root}/in`, bytes)));
    stop.abort();
    // between a rename and the next, the extraction may have made d itself
    expect([undefined, "EEXIST"]).toContain(await swapping);
    expect(readdirSync(`${root}/elsewhere`)).toEqual([]);
    expect([...outcomes].every((outcome) => outcome === "done" || outcome === "file_error")).toBe(true);
  });

  test("what is no archive, is cut off or has a wrong sum is refused; no half file stays", async () => {
    const whole = tarOf(["f", { content: "x".repeat(5000) }]);
    const wrongSum = Buffer.from(whole);
    wrongSum[0] = 0x67;
    for (const bytes of [Buffer.from("no archive"), randomBytes(5000), wrongSum, whole.subarray(0, 3000)])
      await expect(extract(root, bytes)).rejects.toMatchObject({ code: "file_error" });
    expect(readdirSync(root)).toEqual([]);
    await expect(extract(root, whole.subarray(0, 512 + 5120))).rejects.toMatchObject({ code: "file_error" });
    expect(readdirSync(root)).toEqual(["f"]);
    const sparse = execFileSync("sh", ["-c", "truncate -s 1M f; tar -c --sparse f"], { cwd: root });
    await expect(extract(root, sparse)).rejects.toMatchObject({ details: { errno: "ENOTSUP" } });
  });

  test("random damage to an archive is refused or taken, and never ends the agent", async () => {
    mkdirSync(`${root}/from`);
    mkdirSync(`${root}/to`);
    plantTree(`${root}/from`);
    truncateSync(`${root}/from/sparse`, 5000);
    truncateSync(`${root}/from/large`, 5000);
    const { bytes } = await archive(`${root}/from`);
    const outcomes = new Set<string>();
    for (let round = 0; round < 300; round++) {
      const damaged = Buffer.from(bytes);
      for (let hit = 0; hit < 1 + (round % 8); hit++) {
        const at = Math.floor(Math.random() * damaged.length);
        damaged[at] = Math.floor(Math.random() * 256);
        // half of them with a sum that is right
        const block = at - (at % 512);
        if (round % 2) {
          damaged.fill(0x20, block + 148, block + 156);
          const sum = damaged.subarray(block, block + 512).reduce((total, byte) => total + byte, 0);
          damaged.write(`${sum.toString(8).padStart(6, "0")}\0 `, block + 148, "latin1");
        }
      }
      outcomes.add(await outcomeOf(extract(`${root}/to`, damaged)));
    }
    outcomes.delete("done");
    expect([...outcomes]).toEqual(["file_error"]);
    await connection.ping();
    expect(readdirSync(root).sort()).toEqual(["from", "to"]);
  });
});

test("a link of an archive is what it was", async () => {
  await extract(root, tarOf(["l", { type: "symlink", link: "/no/where", uid: 4, gid: 5, mtimeMs: 5000 }]));
  const { uid, gid, mtimeMs } = lstatSync(`${root}/l`);
  expect([readlinkSync(`${root}/l`), uid, gid, mtimeMs]).toEqual(["/no/where", 4, 5, 5000]);
});
