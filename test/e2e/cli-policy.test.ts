import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type CommandResult, type Fleet, startFleet } from "./fleet.ts";

let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet();
});
afterAll(async () => fleet[Symbol.asyncDispose]());

const dsec = async (...argv: readonly string[]): Promise<CommandResult> => fleet.dsec(argv);

/** A command line that must do well; its output. */
async function ok(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await dsec(...argv);
  expect([code, stderr]).toEqual([0, ""]);
  return stdout;
}

async function simulated(...flags: readonly string[]): Promise<string> {
  return (await ok("run", "-q", "--backend", "simulated", ...flags, "none")).trim();
}

async function fileOf(content: string): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-policy-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  await writeFile(join(dir, "policy.yaml"), content);
  return join(dir, "policy.yaml");
}

test("a policy is made, shown as the file it can be made from, changed, compared and forgotten", async () => {
  expect(await ok("policy", "create", "web", "--allow", "pypi", "--deny", "[2001:db8::]/32")).toBe("web@1\n");
  const shown = await ok("policy", "get", "web");
  expect(shown).toBe(`# web@1\ndefault: deny\nallow:\n  - pypi\ndeny:\n  - "[2001:db8::]/32"\n`);
  const file = await fileOf(`${shown}  - npm\n`);
  expect(await ok("policy", "set", "web", "-f", file, "--expected-version", "1")).toBe("web@2\n");
  const late = await dsec("policy", "set", "web", "--allow", "npm", "--expected-version", "1");
  expect([late.code, late.stderr]).toEqual([125, expect.stringContaining("(conflict)")]);

  const difference = await dsec("policy", "diff", "web@1", "-o", "json");
  expect([difference.code, JSON.parse(difference.stdout)]).toEqual([
    1,
    [{ change: "added", rule: "deny npm" }],
  ]);
  expect((await dsec("policy", "diff", "web@2", "web")).code).toBe(0);
  expect(await ok("policy", "ls", "-o", "name")).toBe("web@2\n");
  expect(await ok("policy", "ls", "web", "-o", "name")).toBe("web@2\nweb@1\n");
  expect(JSON.parse(await ok("policy", "get", "web@1", "-o", "json"))).toMatchObject({
    version: 1,
    newestVersion: 2,
  });
  expect(await ok("policy", "rm", "web@1")).toBe("web@1\n");
  const gone = await dsec("policy", "rm", "web@1", "web");
  expect([gone.code, gone.stdout, gone.stderr]).toEqual([
    125,
    "web\n",
    expect.stringContaining("(not_found)"),
  ]);
});

test("a push changes those that are chosen, says what changed, and what it could not do", async () => {
  await ok("policy", "create", "stage", "--allow", "pypi");
  const [a, b] = [await simulated("-l", "stage=1", "--name", "a"), await simulated("-l", "stage=1")];
  const other = await simulated("--network-policy", "stage", "--allow", "npm");
  const rows = JSON.parse(await ok("policy", "push", "stage", "-l", "stage=1", "-o", "json")) as {
    id: string;
  }[];
  expect(rows.map(({ id }) => id).toSorted()).toEqual([a, b].toSorted());
  for (const row of rows) expect(row).toMatchObject({ outcome: "changed", added: ["allow pypi"] });
  const policies = (JSON.parse(await ok("inspect", a, other)) as { networkPolicy: object }[]).map(
    ({ networkPolicy }) => networkPolicy,
  );
  expect(policies).toMatchObject([
    { origin: { name: "stage", version: 1 }, revision: 2, rules: 1 },
    { origin: { name: "stage", version: 1 }, revision: 1, rules: 2 },
  ]);
  expect(await ok("policy", "get", "sandbox/a")).toContain("# sandbox");

  await ok("stop", b);
  const partly = await dsec("policy", "push", "none", "a", b, "-o", "json");
  expect([partly.code, partly.stderr]).toEqual([125, expect.stringContaining("sandbox_not_running")]);
  expect(JSON.parse(partly.stdout)).toMatchObject(
    [
      { id: a, outcome: "changed" },
      { id: b, outcome: "failed" },
    ].toSorted((x, y) => (x.id < y.id ? -1 : 1)),
  );
  expect(await ok("policy", "push", "--allow", "npm", "--dry-run", "a")).toMatch(
    /changed +none +rules +1 +0/,
  );
});

test("a test says which rule decides, and exits with what it found", async () => {
  const id = await simulated("--allow", "pypi", "--deny", "192.0.2.0/24");
  const allowed = await dsec("policy", "test", id, "pypi.org:443");
  expect([allowed.code, allowed.stdout]).toEqual([
    0,
    expect.stringMatching(/pypi.org:443 +allowed +allow pypi/),
  ]);
  const refused = await dsec("policy", "test", id, "192.0.2.9:443/udp");
  expect([refused.code, refused.stdout]).toEqual([
    1,
    expect.stringMatching(/192.0.2.9 +refused +deny 192.0.2.0\/24/),
  ]);
  expect(await ok("policy", "log", id, "-o", "ndjson")).toBe("");
});

test.each<[string, readonly string[], number, string]>([
  ["a rule that cannot be read", ["policy", "create", "x", "--allow", "a b"], 2, "'a b' is no network rule"],
  ["a registry nobody knows", ["policy", "create", "x", "--allow", "nmp"], 125, "(unknown_registry)"],
  ["no rules", ["policy", "create", "x"], 2, "say what the rules are"],
  [
    "a file that is not there",
    ["policy", "create", "x", "-f", "/nowhere"],
    2,
    "--file /nowhere cannot be read",
  ],
  ["a built-in name", ["policy", "create", "open", "--allow", "npm"], 2, "built in"],
  ["nobody to push to", ["policy", "push", "none"], 2, "give a sandbox id"],
  ["an unknown policy", ["policy", "push", "nope", "--all"], 125, "(not_found)"],
  ["a destination that is none", ["policy", "test", "x", "a:b:c"], 125, "(not_found)"],
])("%s is refused with the reason", async (_what, argv, code, message) => {
  const result = await dsec(...argv);
  expect([result.code, result.stderr]).toEqual([code, expect.stringContaining(message)]);
});
