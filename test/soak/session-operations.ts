import type { ExecResult } from "../../src/sdk/index.ts";
import { expectBytes, expectEqual, expectRefusal, Mismatch } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { directories, freshSession, type SessionModel, type World } from "./world.ts";

const names = ["main", "s1", "s2", "s3", "odd.name_-1"] as const;
const variables = ["A", "B_2", "longer_name"] as const;
const functions = ["f", "g_2"] as const;

/** Text as one word of shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

interface Predicted {
  readonly stdout?: string;
  readonly stderr?: string;
  readonly exitCode?: number;
  readonly shell?: "kept" | "restarted";
}

function expectResult(what: string, result: ExecResult, predicted: Predicted): void {
  const { stdout = "", stderr = "", exitCode = 0, shell = "kept" } = predicted;
  const actual = {
    stdout: result.stdout,
    stderr: result.stderr,
    exitCode: result.exitCode,
    shell: result.session?.shell,
  };
  expectEqual(what, actual, { stdout, stderr, exitCode, shell });
}

function pickSession({ random, sessions }: World): {
  readonly session: string;
  readonly model: SessionModel;
} {
  const session = random.pick(names);
  const model = sessions.get(session) ?? freshSession();
  sessions.set(session, model);
  return { session, model };
}

/** One line of shell that changes what is remembered, and the change. */
function change({ random }: World, model: SessionModel): string {
  const name = random.pick(variables);
  const value = random.text();
  const changes = [
    () => {
      if (!model.exported.has(name)) model.shellVariables.set(name, value);
      else model.exported.set(name, value);
      return `${name}=${quoted(value)}`;
    },
    () => {
      model.shellVariables.delete(name);
      model.exported.set(name, value);
      return `export ${name}=${quoted(value)}`;
    },
    () => {
      model.shellVariables.delete(name);
      model.exported.delete(name);
      return `unset ${name}`;
    },
    () => {
      const called = random.pick(functions);
      const constant = `c${random.int(1000)}`;
      model.functions.set(called, constant);
      return `${called}() { echo "${constant}:$1"; return 4; }`;
    },
    () => {
      model.cwd = random.pick(directories);
      return `cd ${quoted(model.cwd)}`;
    },
    () => {
      model.umask = random.pick([0o022, 0o077, 0o027, 0o002]);
      return `umask ${model.umask.toString(8).padStart(4, "0")}`;
    },
  ];
  return random.pick(changes)();
}

async function remember(world: World): Promise<void> {
  const { session, model } = pickSession(world);
  const lines = Array.from({ length: world.random.between(1, 4) }, () => change(world, model));
  expectResult("changes", await world.sandbox.runShell(lines.join("\n"), { session }), {});
}

async function recall(world: World): Promise<void> {
  const { session, model } = pickSession(world);
  const script = [
    "pwd",
    "umask",
    ...variables.map((name) => `printf '%s|' "\${${name}-unset}"`),
    ...variables.map((name) => `printf '%s|' "$(sh -c 'printf %s "\${${name}-unset}"')"`),
    ...functions.map((name) => `${name} x 2>/dev/null; echo $?`),
  ].join("\n");
  const value = (name: string): string =>
    model.shellVariables.get(name) ?? model.exported.get(name) ?? "unset";
  const stdout = [
    `${model.cwd}\n${model.umask.toString(8).padStart(4, "0")}\n`,
    ...variables.map((name) => `${value(name)}|`),
    ...variables.map((name) => `${model.exported.get(name) ?? "unset"}|`),
    ...functions.map((name) => {
      const constant = model.functions.get(name);
      return constant === undefined ? "127\n" : `${constant}:x\n4\n`;
    }),
  ].join("");
  expectResult("what is remembered", await world.sandbox.runShell(script, { session }), { stdout });
}

/** The shell is gone, and with it everything it knew. */
async function lose(world: World): Promise<void> {
  const { session } = pickSession(world);
  const code = world.random.int(256);
  const { script, exitCode } = world.random.pick([
    { script: `exit ${code}`, exitCode: code },
    { script: `exec sh -c 'exit ${code}'`, exitCode: code },
    { script: "kill -9 $$", exitCode: 137 },
    { script: `echo() { exit ${code}; }; echo`, exitCode: code },
  ]);
  const result = await world.sandbox.runShell(script, { session });
  world.sessions.set(session, freshSession());
  world.restarts.set(session, (world.restarts.get(session) ?? 0) + 1);
  expectResult(`after ${script}`, result, { exitCode, shell: "restarted" });
}

async function fail(world: World): Promise<void> {
  const { session } = pickSession(world);
  const { script, exitCode } = world.random.pick([
    { script: "if then fi (", exitCode: 2 },
    { script: "nosuchcommand_x", exitCode: 127 },
    { script: "ls /no/such", exitCode: 1 },
    { script: "echo >&2 told; sh -c 'kill -15 $$'", exitCode: 143 },
    { script: "/etc", exitCode: 126 },
  ]);
  const result = await world.sandbox.runShell(script, { session });
  if (result.stderr === "") throw new Mismatch(`after ${script}: nothing on stderr`);
  expectEqual(
    `after ${script}`,
    [result.exitCode, result.stdout, result.session?.shell],
    [exitCode, "", "kept"],
  );
}

async function output(world: World): Promise<void> {
  const { session } = pickSession(world);
  const count = world.random.between(1, 60_000);
  const lines = Array.from({ length: count }, (_, n) => `${n + 1}\n`).join("");
  const result = await world.sandbox.runShell(`seq 1 ${count}; printf 'a\\0b'; printf end >&2`, { session });
  expectBytes("a long output", result.stdoutBytes, Buffer.from(`${lines}a\0b`));
  expectEqual("its end", [result.stderr, result.exitCode], ["end", 0]);
}

async function timeOut(world: World): Promise<void> {
  const { session } = pickSession(world);
  const result = await world.sandbox.runShell("echo begun; sleep 1000; echo never", {
    session,
    timeoutMs: 1500,
  });
  // the shell's own remark on what it waited for
  expectResult("a timeout", result, { stdout: "begun\n", stderr: "Killed\n", exitCode: 124 });
  expectEqual("a timeout", result.timedOut, true);
}

async function once(world: World): Promise<void> {
  const { session, model } = pickSession(world);
  const value = world.random.text();
  const cwd = world.random.pick(directories);
  const script = `pwd; printf %s "$(sh -c 'printf %s "$ONCE"')"; cat; sleep 3 &`;
  const result = await world.sandbox.runShell(script, { session, cwd, env: { ONCE: value } });
  expectResult("what holds for one command", result, { stdout: `${cwd}\n${value}` });
  const after = await world.sandbox.runShell(`pwd; echo "\${ONCE-gone}"`, { session });
  expectResult("after it", after, { stdout: `${model.cwd}\ngone\n` });
}

/** Calls of one session come one after the other, sessions side by side. */
async function crowd(world: World): Promise<void> {
  const calls = Array.from({ length: world.random.between(2, 8) }, () => pickSession(world));
  const answers = await Promise.all(
    calls.map(async ({ session }) =>
      world.sandbox.runShell("counter=$((counter+1)); echo $counter", { session }),
    ),
  );
  const found = calls.map(({ session }, index) => `${session} ${answers[index]?.stdout}`).sort();
  const predicted = calls.map(({ session, model }) => `${session} ${++model.counter}\n`).sort();
  expectEqual("counters", found, predicted);
}

async function list(world: World): Promise<void> {
  const listed = (await world.sandbox.sessions()).map(({ name, restarts, busy }) => ({
    name,
    restarts,
    busy,
  }));
  const known = [...world.sessions.keys()].map((name) => ({
    name,
    restarts: world.restarts.get(name) ?? 0,
    busy: false,
  }));
  const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
    a.name < b.name ? -1 : 1;
  expectEqual("sessions", listed.sort(byName), known.sort(byName));
}

async function end(world: World): Promise<void> {
  const session = world.random.pick(names);
  if (!world.sessions.has(session)) {
    await expectRefusal("ending no session", world.sandbox.endSession(session), "not_found");
    return;
  }
  await world.sandbox.endSession(session);
  world.sessions.delete(session);
  world.restarts.delete(session);
}

export const sessionOperations: readonly Operation[] = [
  { name: "session: change", weight: 10, run: remember },
  { name: "session: recall", weight: 12, run: recall },
  { name: "session: lose the shell", weight: 3, run: lose },
  { name: "session: failing command", weight: 4, run: fail },
  { name: "session: long output", weight: 3, run: output },
  { name: "session: timeout", weight: 1, run: timeOut },
  { name: "session: directory and environment of one command", weight: 4, run: once },
  { name: "session: several calls at once", weight: 5, run: crowd },
  { name: "session: list", weight: 3, run: list },
  { name: "session: end", weight: 2, run: end },
];
