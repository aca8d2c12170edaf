import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { readTar } from "../../src/protocol/tar-decode.ts";
import { encodeTarHeader } from "../../src/protocol/tar-encode.ts";
import type { TarMember } from "../../src/protocol/tar-member.ts";
import { LocalArchive } from "../../src/sdk/local-archive.ts";
import { LocalTree } from "../../src/sdk/local-tree.ts";
import { inParts, type Member, tarOf } from "../protocol/tar-fixture.ts";

let home: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "dsec-local-tree-"));
  onTestFinished(async () => rm(home, { recursive: true, force: true }));
  mkdirSync(`${home}/target/there`, { recursive: true });
  mkdirSync(`${home}/outside`);
  writeFileSync(`${home}/outside/precious`, "precious");
});

async function extract(source: AsyncIterable<Buffer>, owners = false): Promise<void> {
  await using tree = new LocalTree(Buffer.from(`${home}/target`), owners);
  for await (const entry of readTar(source)) await tree.put(entry);
  await tree.end();
}

describe("an archive out of a hostile sandbox", () => {
  const cases: [string, Member[]][] = [
    ["a name with ..", [["../outside/evil", { content: "x" }]]],
    ["a name with .. behind a directory", [["there/../../outside/evil", { content: "x" }]]],
    ["an absolute name", [["/tmp/dsec-evil", { content: "x" }]]],
    ["a name with a zero", [[`${"long".repeat(40)}\0`, { content: "x" }]]],
    [
      "a symlink, then a file through it",
      [
        ["s", { type: "symlink", link: "../outside" }],
        ["s/evil", { content: "x" }],
      ],
    ],
    [
      "an absolute symlink, then a file through it",
      [
        ["s", { type: "symlink", link: "/" }],
        ["s/tmp/dsec-evil", { content: "x" }],
      ],
    ],
    [
      "a symlink, then a directory in its place, then a file in that",
      [
        ["s", { type: "symlink", link: "../outside" }],
        ["s", { type: "directory" }],
        ["s/evil", { content: "x" }],
      ],
    ],
    [
      "a directory that was gone through before, then a symlink in its place",
      [
        ["d", { type: "directory" }],
        ["d/f", { content: "x" }],
        ["d", { type: "symlink", link: "../outside" }],
        ["d/evil", { content: "x" }],
      ],
    ],
    [
      "chained symlinks",
      [
        ["a", { type: "directory" }],
        ["a/up", { type: "symlink", link: ".." }],
        ["b", { type: "symlink", link: "a/up/../outside" }],
        ["b/evil", { content: "x" }],
      ],
    ],
    ["a hard link to a file outside", [["l", { type: "link", link: "../outside/precious" }]]],
    ["a hard link to an absolute name", [["l", { type: "link", link: "/etc/passwd" }]]],
    [
      "a hard link through a symlink",
      [
        ["s", { type: "symlink", link: "../outside" }],
        ["l", { type: "link", link: "s/precious" }],
      ],
    ],
    ["a symlink that you have, then a file through it", [["mine/evil", { content: "x" }]]],
    ["a file in the place of a directory", [["there", { content: "x" }]]],
  ];
  test.each(cases)("is refused: %s", async (_, members) => {
    symlinkSync("../outside", `${home}/target/mine`);
    await expect(extract(inParts(tarOf(...members)))).rejects.toThrow(Error);
    expect(readdirSync(home).sort()).toEqual(["outside", "target"]);
    expect(readdirSync(`${home}/outside`)).toEqual(["precious"]);
    expect(readFileSync(`${home}/outside/precious`, "utf8")).toBe("precious");
    expect(statSync(`${home}/outside/precious`).nlink).toBe(1);
    expect(readdirSync("/tmp")).not.toContain("dsec-evil");
    expect(readdirSync(`${home}/target`).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });

  test("replaces symlinks and hard links that you have, and never writes through them", async () => {
    symlinkSync("../outside/precious", `${home}/target/symlink`);
    linkSync(`${home}/outside/precious`, `${home}/target/hard`);
    await extract(inParts(tarOf(["symlink", { content: "new" }], ["hard", { content: "new" }])));
    expect(readFileSync(`${home}/target/symlink`, "utf8")).toBe("new");
    expect(readFileSync(`${home}/target/hard`, "utf8")).toBe("new");
    expect(readFileSync(`${home}/outside/precious`, "utf8")).toBe("precious");
  });

  test("names that a file system takes for the same are looked up there, not remembered", async () => {
    // on a file system that knows no case, S and s are one: simulated by what the second name then finds
    symlinkSync("../outside", `${home}/target/s`);
    const members: Member[] = [
      ["S", { type: "directory" }],
      ["s/evil", { content: "x" }],
    ];
    await expect(extract(inParts(tarOf(...members)))).rejects.toThrow(Error);
    expect(readdirSync(`${home}/outside`)).toEqual(["precious"]);
  });

  test("brings no set-id bits and no owners unless they are asked for", async () => {
    const members: Member[] = [
      ["f", { mode: 0o6755, uid: 12, gid: 34, content: "x" }],
      ["d", { type: "directory", mode: 0o2777, uid: 12 }],
    ];
    await extract(inParts(tarOf(...members)));
    expect(statSync(`${home}/target/f`).mode & 0o7777).toBe(0o755);
    expect(statSync(`${home}/target/d`).mode & 0o7777).toBe(0o777);
    expect(statSync(`${home}/target/f`).uid).toBe(process.getuid?.());
  });

  test("devices and FIFOs are not made", async () => {
    await extract(inParts(tarOf(["null", { type: "character" }], ["pipe", { type: "fifo" }])));
    expect(readdirSync(`${home}/target`)).toEqual(["there"]);
  });

  test.each([
    ["nothing", Buffer.alloc(0)],
    ["no archive", Buffer.from("no archive".repeat(100))],
    ["an archive without its end", encodeTarHeader(plain("f"))],
    ["a member that is cut off", encodeTarHeader({ ...plain("f"), size: 1000 })],
    ["an endless extended header", encodeTarHeader({ ...plain("x".repeat(2_000_000)) })],
  ])("%s is an error, never taken for whole", async (_, bytes) => {
    await expect(extract(inParts(bytes))).rejects.toMatchObject({ code: "protocol_error" });
    expect(readdirSync(`${home}/target`).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });
});

function plain(name: string): TarMember {
  return { type: "file", name: Buffer.from(name), mode: 0o644, uid: 0, gid: 0, mtimeMs: 0, size: 0 };
}

test("what is archived here comes back as it was: links, holes, empty folders, odd and long names, times", async () => {
  const from = `${home}/from`;
  mkdirSync(`${from}/${"long ".repeat(40)}/empty`, { recursive: true });
  const odd = Buffer.concat([Buffer.from(`${from}/`), Buffer.from([0xff, 0xfe, 0x0a])]);
  writeFileSync(odd, "odd", { mode: 0o604 });
  writeFileSync(`${from}/f`, "x".repeat(300_000));
  linkSync(`${from}/f`, `${from}/second`);
  symlinkSync("t".repeat(200), `${from}/dangling`);
  writeFileSync(`${from}/sparse`, "");
  truncateSync(`${from}/sparse`, 10_000_000);
  utimesSync(`${from}/f`, 1_111_111_111.5, 1_111_111_111.5);
  chmodSync(`${from}/${"long ".repeat(40)}`, 0o511);
  utimesSync(`${from}/${"long ".repeat(40)}`, 12, 12);
  const archive = new LocalArchive();
  await extract(archive.chunks(Buffer.from(from), Buffer.from("back")));
  const back = `${home}/target/back`;
  expect(readdirSync(back, { encoding: "buffer" }).map(String).sort()).toEqual(
    readdirSync(from, { encoding: "buffer" }).map(String).sort(),
  );
  expect(readFileSync(`${back}/f`, "utf8")).toBe("x".repeat(300_000));
  expect(statSync(`${back}/f`).ino).toBe(statSync(`${back}/second`).ino);
  expect(statSync(`${back}/f`).mtimeMs).toBe(1_111_111_111_500);
  expect(readlinkSync(`${back}/dangling`)).toBe("t".repeat(200));
  expect(statSync(`${back}/sparse`)).toMatchObject({ size: 10_000_000 });
  expect(statSync(`${back}/sparse`).blocks).toBeLessThan(64);
  const oddBack = Buffer.concat([Buffer.from(`${back}/`), Buffer.from([0xff, 0xfe, 0x0a])]);
  expect([readFileSync(oddBack, "utf8"), lstatSync(oddBack).mode & 0o777]).toEqual(["odd", 0o604]);
  const folder = statSync(`${back}/${"long ".repeat(40)}`);
  expect([folder.mode & 0o777, folder.mtimeMs]).toEqual([0o511, 12_000]);
  expect(archive.totals).toMatchObject({ entries: 8, skippedCount: 0 });
});
