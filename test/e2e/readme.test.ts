import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Fleet, startFleet } from "./fleet.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

let fleet: Fleet;
let project: string;

beforeAll(async () => {
  fleet = await startFleet();
  project = await mkdtemp(join(tmpdir(), "dsec-readme-"));
});

afterAll(async () => {
  await rm(project, { recursive: true, force: true });
  await fleet[Symbol.asyncDispose]();
});

test("the program in the README does what it says, exactly as printed", async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const listing = /```ts\n([\s\S]*?)```/.exec(readme)?.[1];
  expect(listing).toContain("runContainer");
  await mkdir(join(project, "node_modules"));
  await symlink(root, join(project, "node_modules/dsec"));
  await writeFile(join(project, "package.json"), '{ "type": "module" }');
  await writeFile(join(project, "listing.ts"), listing ?? "");
  const { stdout } = await run(process.execPath, ["listing.ts"], {
    cwd: project,
    env: { ...process.env, ...fleet.env, DSEC_ADDRESS: fleet.address, DSEC_TOKEN: fleet.token },
  });
  expect(stdout).toBe("42 0\n");
  const listed = await fleet.dsec(["ls", "-a", "-o", "json"]);
  expect(JSON.parse(listed.stdout)).toMatchObject([
    { image: "debian", state: "stopped", endReason: "stopped" },
  ]);
});

test("the verbs in the README's table are the verbs of the program", async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const table = readme.slice(readme.indexOf("| Verb |"), readme.indexOf("`-o table|wide"));
  const named = [...table.matchAll(/^\| (.+?) \|/gm)].flatMap(([, cell = ""]) =>
    [...cell.matchAll(/`([a-z]+)/g)].map(([, verb]) => verb),
  );
  const { stdout } = await fleet.dsec(["--help"]);
  for (const verb of named) expect(stdout).toMatch(new RegExp(`^  ${verb}\\b`, "m"));
});
