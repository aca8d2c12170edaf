import { lstat, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expectBytes, expectEqual, expectRefusal } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import type { Random } from "./random.ts";
import { oddDirectory, type World } from "./world.ts";

/** Bytes of the longest name that there is. */
const nameMax = 255;
const maxNames = 16;
const slash = 0x2f;

/** Anything that Linux takes: most often no UTF-8, with line feeds and control characters, or as long as names get. */
function oddName(random: Random): Buffer {
  const length = random.chance(0.2) ? nameMax : random.between(1, 24);
  const bytes = random.bytes(length).map((byte) => (byte === 0 || byte === slash ? 0x0a : byte));
  const name = random.chance(0.2) ? Buffer.from(`\n${random.text()}\u{1f4a9}`) : Buffer.from(bytes);
  return name.toString("latin1") === "." || name.toString("latin1") === ".." ? Buffer.from("\xff") : name;
}

/** Names are keys as Latin-1 text, which has each byte as one character. */
function pathOf(key: string): Buffer {
  return Buffer.concat([Buffer.from(`${oddDirectory}/`), Buffer.from(key, "latin1")]);
}

function freshKey({ random, oddFiles }: World): string {
  for (;;) {
    const key = oddName(random).toString("latin1");
    if (!oddFiles.has(key)) return key;
  }
}

async function write(world: World): Promise<void> {
  const { sandbox, random, oddFiles } = world;
  const key = oddFiles.size >= maxNames ? random.pick([...oddFiles.keys()]) : freshKey(world);
  const content = random.bytes(random.between(0, 3000));
  await sandbox.files.write(pathOf(key), content);
  oddFiles.set(key, content);
  expectBytes("what was written by an odd name", await sandbox.files.read(pathOf(key)), content);
}

async function list({ sandbox, oddFiles }: World): Promise<void> {
  const entries = await sandbox.files.list(oddDirectory);
  const found = entries.map(({ nameBytes, size }) => `${nameBytes.toString("latin1")} ${size}`);
  const known = [...oddFiles].map(([key, content]) => `${key} ${content.length}`);
  expectEqual("a list of odd names", found.sort(), known.sort());
  const inside = await sandbox.exec(["find", oddDirectory, "-mindepth", "1", "-print0"]);
  const seen = inside.stdoutBytes.toString("latin1").split("\0").slice(0, -1);
  const paths = [...oddFiles.keys()].map((key) => `${oddDirectory}/${key}`);
  expectEqual("odd names, seen from inside", seen.sort(), paths.sort());
}

async function rename(world: World): Promise<void> {
  const { sandbox, random, oddFiles } = world;
  if (oddFiles.size === 0) return;
  const from = random.pick([...oddFiles.keys()]);
  const content = oddFiles.get(from);
  const to = freshKey(world);
  await sandbox.files.rename(pathOf(from), pathOf(to));
  oddFiles.delete(from);
  if (content !== undefined) oddFiles.set(to, content);
  await expectRefusal(
    "an odd name that was given up",
    sandbox.files.read(pathOf(from)),
    "file_error",
    "ENOENT",
  );
}

async function remove({ sandbox, random, oddFiles }: World): Promise<void> {
  if (oddFiles.size === 0) return;
  const key = random.pick([...oddFiles.keys()]);
  await sandbox.files.remove(pathOf(key));
  oddFiles.delete(key);
}

async function tooLong({ sandbox }: World): Promise<void> {
  const path = pathOf("x".repeat(nameMax + 1));
  await expectRefusal(
    "a name that is too long",
    sandbox.files.write(path, "x"),
    "file_error",
    "ENAMETOOLONG",
  );
}

/** A link that was made inside is seen as one, and followed where that is asked for, inside only. */
async function link(world: World): Promise<void> {
  const { sandbox, oddFiles } = world;
  const [first] = oddFiles;
  if (first === undefined) return;
  const [key, content] = first;
  const at = `/soak/link${++world.serial}`;
  const target = pathOf(key);
  // as an operand a name could end with line feeds, which $(…) would take away
  const script = `IFS= read -r -d '' target; ln -s "$target" ${at}`;
  const made = await sandbox.exec(["sh", "-c", script], { stdin: Buffer.concat([target, Buffer.alloc(1)]) });
  expectEqual("a link inside", [made.exitCode, made.stderr], [0, ""]);
  const stat = await sandbox.files.stat(at, { followSymlinks: false });
  expectEqual("a link", [stat.type, stat.linkTargetBytes?.equals(target)], ["symlink", true]);
  expectBytes("what a link leads to", await sandbox.files.read(at), content);
  await sandbox.files.remove(at);
  expectBytes("what a link led to", await sandbox.files.read(target), content);
}

/** The directory comes here and goes back under another name, and is the same. */
async function roundTrip(world: World): Promise<void> {
  const { sandbox, oddFiles } = world;
  const local = await mkdtemp(join(tmpdir(), "dsec-soak-"));
  try {
    const got = join(local, "got");
    await sandbox.files.download(oddDirectory, got);
    const names = (await readdir(got, { encoding: "buffer" })).map((name) => name.toString("latin1"));
    expectEqual("odd names, downloaded", names.sort(), [...oddFiles.keys()].sort());
    for (const [key, content] of oddFiles) {
      const path = Buffer.concat([Buffer.from(`${got}/`), Buffer.from(key, "latin1")]);
      expectEqual("type of an odd name, downloaded", (await lstat(path)).isFile(), true);
      expectBytes("content of an odd name, downloaded", await readFile(path), content);
    }
    const back = `/soak/odd${++world.serial}`;
    await sandbox.files.upload(got, back);
    const { stdout, stderr, exitCode } = await sandbox.exec(["diff", "-r", oddDirectory, back]);
    expectEqual("odd names, uploaded again", [stdout, stderr, exitCode], ["", "", 0]);
    await sandbox.files.remove(back, { recursive: true });
  } finally {
    await rm(local, { recursive: true, force: true });
  }
}

export const nameOperations: readonly Operation[] = [
  { name: "names: write and read", weight: 4, run: write },
  { name: "names: list, and audit from inside", weight: 2, run: list },
  { name: "names: rename", weight: 2, run: rename },
  { name: "names: remove", weight: 1, run: remove },
  { name: "names: too long", weight: 0.5, run: tooLong },
  { name: "names: link", weight: 1.5, run: link },
  { name: "names: download, upload", weight: 1, run: roundTrip },
];
