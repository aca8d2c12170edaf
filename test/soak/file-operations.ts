import { expectBytes, expectEqual, expectRefusal } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import type { Random } from "./random.ts";
import { quoted } from "./session-operations.ts";
import { treeRoot } from "./tree.ts";
import type { World } from "./world.ts";

const modes = [0o644, 0o600, 0o755, 0o640, 0o444] as const;

function someBytes(random: Random): Buffer {
  return random.bytes(random.between(0, random.chance(0.08) ? 1_500_000 : 8000));
}

async function* pieces(content: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
}

async function write({ sandbox, tree, random }: World): Promise<void> {
  const path = tree.filePath(random);
  const content = someBytes(random);
  const old = tree.get(path);
  const wanted = random.chance(0.5) ? random.pick(modes) : undefined;
  const data = random.chance(0.3) ? pieces(content, random.between(500, 100_000)) : content;
  await sandbox.files.write(path, data, wanted === undefined ? {} : { mode: wanted });
  const mode = wanted ?? (old?.type === "file" ? old.mode : 0o644);
  tree.set(path, { type: "file", mode, content });
}

async function writeDeep({ sandbox, tree, random }: World): Promise<void> {
  if (tree.isFull) return;
  const directory = tree.freshPath(random);
  const path = `${directory}/new`;
  await expectRefusal("a file in no directory", sandbox.files.write(path, "x"), "file_error", "ENOENT");
  const content = Buffer.from(random.text());
  await sandbox.files.write(path, content, { parents: true, mode: 0o600 });
  tree.set(directory, { type: "directory", mode: 0o755 });
  tree.set(path, { type: "file", mode: 0o600, content });
}

async function read({ sandbox, tree, random }: World): Promise<void> {
  const files = tree.paths("file");
  if (files.length === 0) return;
  const path = random.pick(files);
  const node = tree.get(path);
  if (node?.type !== "file") return;
  const { content } = node;
  const way = random.pick(["part", "stream", "whole", "whole"]);
  if (way === "part") {
    const offset = random.int(content.length + 10);
    const length = random.int(content.length + 10);
    const part = await sandbox.files.read(path, { offset, length });
    expectBytes(`a part of ${path}`, part, content.subarray(offset, offset + length));
  } else if (way === "stream") {
    const chunks: Buffer[] = [];
    for await (const chunk of (await sandbox.files.stream(path)) as AsyncIterable<Buffer>) chunks.push(chunk);
    expectBytes(path, Buffer.concat(chunks), content);
  } else expectBytes(path, await sandbox.files.read(path), content);
}

async function readInside({ sandbox, tree, random }: World): Promise<void> {
  const files = tree.paths("file");
  if (files.length === 0) return;
  const path = random.pick(files);
  const node = tree.get(path);
  if (node?.type !== "file") return;
  expectBytes(`cat ${path}`, (await sandbox.exec(["cat", path])).stdoutBytes, node.content);
}

/** What a session writes is what the files have, with the session's umask. */
async function writeInside(world: World): Promise<void> {
  const { sandbox, tree, random, sessions } = world;
  const session = [...sessions.keys()][0];
  const model = session === undefined ? undefined : sessions.get(session);
  if (session === undefined || model === undefined || tree.isFull) return;
  const path = tree.freshPath(random);
  const text = random.text();
  const result = await sandbox.runShell(`printf %s ${quoted(text)} >${quoted(path)}`, { session });
  expectEqual(`writing ${path} in a session`, [result.exitCode, result.stderr], [0, ""]);
  tree.set(path, { type: "file", mode: 0o666 & ~model.umask, content: Buffer.from(text) });
}

async function stat({ sandbox, tree, random }: World): Promise<void> {
  const path = random.pick(tree.paths());
  const node = tree.get(path);
  if (node === undefined) return;
  const { type, mode, size, uid, gid } = await sandbox.files.stat(path);
  const predicted = { type: node.type, mode: node.mode, uid: 0, gid: 0 };
  expectEqual(`stat ${path}`, { type, mode, uid, gid }, predicted);
  if (node.type === "file") expectEqual(`size of ${path}`, size, node.content.length);
}

async function list({ sandbox, tree, random }: World): Promise<void> {
  const path = random.pick(tree.paths("directory"));
  const entries = await sandbox.files.list(path);
  const found = entries.map(({ name, type }) => `${type} ${name}`).sort();
  const known = tree.children(path).map((name) => `${tree.get(`${path}/${name}`)?.type} ${name}`);
  expectEqual(`list ${path}`, found, known.sort());
}

async function makeDirectory({ sandbox, tree, random }: World): Promise<void> {
  if (tree.isFull) {
    const taken = random.pick(tree.paths());
    await expectRefusal("mkdir of what is there", sandbox.files.mkdir(taken), "file_error", "EEXIST");
    return;
  }
  const path = tree.freshPath(random);
  const mode = random.pick([0o755, 0o700, 0o711]);
  await sandbox.files.mkdir(path, { mode });
  tree.set(path, { type: "directory", mode });
}

async function rename({ sandbox, tree, random }: World): Promise<void> {
  const movable = tree.paths().filter((path) => path !== treeRoot);
  if (movable.length === 0) return;
  const from = random.pick(movable);
  const isFile = tree.get(from)?.type === "file";
  const others = tree.paths("file").filter((path) => path !== from);
  const to = isFile && others.length > 0 && random.chance(0.3) ? random.pick(others) : tree.freshPath(random);
  if (to.startsWith(`${from}/`)) {
    await expectRefusal("a move into itself", sandbox.files.rename(from, to), "file_error", "EINVAL");
    return;
  }
  await sandbox.files.rename(from, to);
  tree.move(from, to);
}

async function remove({ sandbox, tree, random }: World): Promise<void> {
  const removable = tree.paths().filter((path) => path !== treeRoot);
  if (removable.length === 0) return;
  const path = random.pick(removable);
  if (tree.children(path).length > 0) {
    if (random.chance(0.5)) {
      await expectRefusal(
        "removing what is not empty",
        sandbox.files.remove(path),
        "file_error",
        "ENOTEMPTY",
      );
      return;
    }
    await sandbox.files.remove(path, { recursive: true });
  } else await sandbox.files.remove(path);
  tree.remove(path);
}

async function refusals({ sandbox, tree, random }: World): Promise<void> {
  const { files } = sandbox;
  const missing = `${random.pick(tree.paths("directory"))}/no-such`;
  await expectRefusal("reading what is missing", files.read(missing), "file_error", "ENOENT");
  await expectRefusal("removing what is missing", files.remove(missing), "file_error", "ENOENT");
  await expectRefusal("reading a directory", files.read(treeRoot), "file_error", "EISDIR");
  await expectRefusal("a relative path", files.read("work/x"), "invalid_argument");
  const [file] = tree.paths("file");
  if (file !== undefined) await expectRefusal("listing a file", files.list(file), "file_error", "ENOTDIR");
}

/** All there is, seen from inside. */
async function audit({ sandbox, tree }: World): Promise<void> {
  const script = [
    `find ${treeRoot} -type f -exec stat -c '%f %s %n' {} +`,
    `find ${treeRoot} -type d -exec stat -c '%f %n' {} +`,
    `find ${treeRoot} -type f -exec sha256sum {} +`,
  ].join("\n");
  const result = await sandbox.exec(["sh", "-c", script]);
  const found = result.stdout.split("\n").filter((line) => line !== "");
  expectEqual("all files, seen from inside", found.sort(), tree.listing());
}

export const fileOperations: readonly Operation[] = [
  { name: "files: write", weight: 8, run: write },
  { name: "files: write with parents", weight: 2, run: writeDeep },
  { name: "files: read", weight: 8, run: read },
  { name: "files: read inside what was written here", weight: 3, run: readInside },
  { name: "files: written by a session", weight: 4, run: writeInside },
  { name: "files: stat", weight: 4, run: stat },
  { name: "files: list", weight: 4, run: list },
  { name: "files: mkdir", weight: 4, run: makeDirectory },
  { name: "files: rename", weight: 4, run: rename },
  { name: "files: remove", weight: 4, run: remove },
  { name: "files: refusals", weight: 2, run: refusals },
  { name: "files: audit from inside", weight: 3, run: audit },
];
