import { describe, expect, test } from "vitest";
import { type SessionFixture, startSessions, testedShells } from "./session-fixture.ts";

const stepsEach = 40;
const seed = 20_260_729;

/** What a session should be like. */
interface Model {
  cwd: string;
  variables: Map<string, string>;
  functions: Map<string, number>;
  umask: string;
}

/** mulberry32. */
function generator(state: number): (below: number) => number {
  let a = state;
  return (below) => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) % 1_000_000) % below;
  };
}

function fresh(directory: string): Model {
  return { cwd: directory, variables: new Map(), functions: new Map(), umask: "0022" };
}

const directories = ["/", "/usr", "/usr/bin", "/etc"] as const;
const names = ["a", "b", "c", "d"] as const;

/** One random command: its text, what it gives, and what it does to the model. */
function step(model: Model, pick: (below: number) => number, directory: string) {
  const name = names[pick(names.length)] ?? "a";
  const value = `v${pick(1000)} 'q' "$x" ü`;
  const code = pick(256);
  const plain = { stdout: "", code: 0, expiresAt: undefined, ends: false };
  switch (pick(13)) {
    case 0: {
      const cwd = directories[pick(directories.length)] ?? "/";
      model.cwd = cwd;
      return { ...plain, command: `cd ${cwd}` };
    }
    case 1:
      return { ...plain, command: "pwd", stdout: `${model.cwd}\n` };
    case 2:
      model.variables.set(name, value);
      return { ...plain, command: `${name}='${value.replaceAll("'", `'\\''`)}'` };
    case 3:
      return {
        ...plain,
        command: `printf '%s' "\${${name}-none}"`,
        stdout: model.variables.get(name) ?? "none",
      };
    case 4:
      model.variables.delete(name);
      return { ...plain, command: `unset ${name}` };
    case 5:
      model.functions.set(name, code);
      return { ...plain, command: `f_${name}() {\n  return ${code}\n}` };
    case 6:
      return { ...plain, command: `f_${name}`, code: model.functions.get(name) ?? 127 };
    case 7:
      model.umask = code % 2 === 0 ? "0027" : "0022";
      return { ...plain, command: `umask ${model.umask}` };
    case 8:
      return { ...plain, command: "umask", stdout: `${model.umask}\n` };
    case 9:
      return { ...plain, command: `(exit ${code})`, code };
    case 10: {
      const lines = pick(3000);
      return {
        ...plain,
        command: `i=0; while [ $i -lt ${lines} ]; do echo $i; i=$((i+1)); done; unset i; (exit ${code})`,
        stdout: Array.from({ length: lines }, (_, i) => `${i}\n`).join(""),
        code,
      };
    }
    case 11:
      if (pick(4) > 0) return { ...plain, command: "echo (", code: 2 };
      Object.assign(model, fresh(directory));
      return { ...plain, command: `printf x; exit ${code}`, stdout: "x", code, ends: true };
    default:
      if (pick(4) > 0) return { ...plain, command: `cat; echo $((6*7))`, stdout: "42\n" };
      return {
        ...plain,
        command: "echo s; sleep 1000; a=wrong; cd /",
        stdout: "s\n",
        code: 137,
        expiresAt: "s\n",
      };
  }
}

async function soak(
  fixture: SessionFixture,
  session: string,
  random: number,
  canGiveUp: boolean,
): Promise<void> {
  const pick = generator(random);
  const model = fresh(fixture.directory);
  for (let steps = 0; steps < stepsEach; steps++) {
    const { command, stdout, code, expiresAt, ends } = step(model, pick, fixture.directory);
    const run = await fixture.run(command, {
      session,
      ...(expiresAt === undefined ? {} : { expiresAt }),
    });
    const loses = ends || (expiresAt !== undefined && !canGiveUp);
    if (loses) Object.assign(model, fresh(fixture.directory));
    expect([random, steps, command, run.stdout, run.exit.code, run.session.shell]).toEqual([
      random,
      steps,
      command,
      stdout,
      code,
      loses ? "restarted" : "kept",
    ]);
  }
}

describe.each(Object.entries(testedShells))("sessions of %s", (name, driver) => {
  test(`do what a model of them says (seed ${seed})`, { timeout: 60_000 }, async () => {
    await using fixture = await startSessions({ driver });
    const sessions = Array.from({ length: 4 }, async (_, i) =>
      soak(fixture, `soak-${i}`, seed + i, name !== "old-bash"),
    );
    await expect(Promise.all(sessions)).resolves.toHaveLength(4);
  });
});
