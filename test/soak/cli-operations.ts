import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expectBytes, expectEqual } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { treeRoot } from "./tree.ts";
import type { World } from "./world.ts";

async function exec({ dsec, sandbox, random }: World): Promise<void> {
  const code = random.int(256);
  const words = Array.from({ length: random.between(1, 4) }, () => random.text());
  const script = `printf '%s|' "$@"; echo err >&2; exit ${code}`;
  const result = await dsec(["exec", sandbox.id, "--", "sh", "-c", script, "sh", ...words]);
  const wanted = [code, words.map((word) => `${word}|`).join(""), "err\n"];
  expectEqual("dsec exec", [result.code, result.stdout, result.stderr], wanted);
}

async function stdin({ dsec, sandbox, random }: World): Promise<void> {
  const input = random.bytes(random.between(0, 300_000));
  const result = await dsec(["exec", "-i", sandbox.id, "--", "cat"], { stdin: input });
  expectEqual("dsec exec -i", [result.code, result.stderr], [0, ""]);
  expectBytes("stdin through dsec exec -i", result.stdoutBytes, input);
}

async function timeOut({ dsec, sandbox }: World): Promise<void> {
  const result = await dsec(["exec", "--timeout", "1s", sandbox.id, "--", "sleep", "1000"]);
  expectEqual("dsec exec --timeout", result.code, 124);
}

async function refused({ dsec, sandbox }: World): Promise<void> {
  expectEqual("no command", (await dsec(["exec", sandbox.id, "--", "nosuchcommand"])).code, 127);
  const missing = await dsec(["exec", `${sandbox.id.slice(0, -3)}zzz`, "--", "true"]);
  expectEqual("exec in no sandbox", missing.code, 125);
}

/** A file goes there by `cp`, its copy comes back, and the model knows it. */
async function cp({ dsec, sandbox, tree, random }: World): Promise<void> {
  if (tree.isFull) return;
  const local = await mkdtemp(join(tmpdir(), "dsec-soak-"));
  try {
    const content = random.bytes(random.between(0, random.chance(0.1) ? 2_000_000 : 20_000));
    const path = tree.freshPath(random);
    await writeFile(join(local, "up"), content, { mode: 0o640 });
    const up = await dsec(["cp", "-q", join(local, "up"), `${sandbox.id}:${path}`]);
    expectEqual("dsec cp to a sandbox", [up.code, up.stdout, up.stderr], [0, "", ""]);
    tree.set(path, { type: "file", mode: 0o640, content });
    const down = await dsec(["cp", "-q", `${sandbox.id}:${path}`, join(local, "down")]);
    expectEqual("dsec cp from a sandbox", [down.code, down.stdout, down.stderr], [0, "", ""]);
    expectBytes("a file that came back by dsec cp", await readFile(join(local, "down")), content);
  } finally {
    await rm(local, { recursive: true, force: true });
  }
}

/** All of the model's files as an archive, out and into the same place again: nothing changes. */
async function archive({ dsec, sandbox }: World): Promise<void> {
  const out = await dsec(["cp", "-q", "-a", `${sandbox.id}:${treeRoot}`, "-"]);
  expectEqual("dsec cp to an archive", [out.code, out.stderr], [0, ""]);
  const back = await dsec(["cp", "-q", "-a", "-", `${sandbox.id}:/`], { stdin: out.stdoutBytes });
  expectEqual("dsec cp of an archive", [back.code, back.stdout, back.stderr], [0, "", ""]);
}

async function look({ dsec, sandbox, labels }: World): Promise<void> {
  const inspected = await dsec(["inspect", "-o", "json", sandbox.id]);
  expectEqual("dsec inspect", [inspected.code, inspected.stderr], [0, ""]);
  const [info] = [JSON.parse(inspected.stdout) as unknown].flat() as Record<string, unknown>[];
  expectEqual(
    "what dsec inspect says",
    [info?.["id"], info?.["state"], info?.["labels"]],
    [sandbox.id, "running", labels],
  );
  const listed = await dsec(["ls", "-o", "name"]);
  expectEqual("dsec ls", [listed.code, listed.stdout.split("\n").includes(sandbox.id)], [0, true]);
}

async function recorded({ dsec, sandbox, random }: World): Promise<void> {
  const mark = `m${random.int(1_000_000)}`;
  const begun = await dsec(["exec", "-d", sandbox.id, "--", "sh", "-c", `echo ${mark}; echo ${mark} >&2`]);
  expectEqual("dsec exec -d", [begun.code, begun.stderr], [0, ""]);
  const result = await dsec(["logs", "-f", "--exec", begun.stdout.trim(), sandbox.id]);
  expectEqual("dsec logs -f", [result.code, result.stdout, result.stderr], [0, `${mark}\n`, `${mark}\n`]);
}

export const cliOperations: readonly Operation[] = [
  { name: "cli: exec, exit code and both streams", weight: 1.5, run: exec },
  { name: "cli: exec -i", weight: 1, run: stdin },
  { name: "cli: exec --timeout", weight: 0.3, run: timeOut },
  { name: "cli: refusals", weight: 0.4, run: refused },
  { name: "cli: cp of a file, both ways", weight: 1, run: cp },
  { name: "cli: cp of an archive, both ways", weight: 0.6, run: archive },
  { name: "cli: inspect, ls", weight: 0.6, run: look },
  { name: "cli: exec -d, logs -f", weight: 0.8, run: recorded },
];
