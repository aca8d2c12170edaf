import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import type { Guest } from "../../src/agent/guest.ts";
import { systemClock } from "../../src/daemon/clock.ts";
import type { SessionRun } from "../../src/daemon/sessions/session-command.ts";
import { Sessions } from "../../src/daemon/sessions/sessions.ts";
import { shells } from "../../src/daemon/sessions/shells.ts";
import { ShellSpec, type ShellSpecInput } from "../../src/protocol/session.ts";
import { never, Output } from "./fixture.ts";
import { noProcessWith, processesWith, uniqueMark } from "./host-processes.ts";
import type { Suite } from "./suite.ts";

export function sessionSentences({ fixture }: Suite): void {
  test("what a command sets is there for the next", async () => {
    const { guest } = await fixture().start();
    const sessions = sessionsOf(guest);
    await run(sessions, { command: "cd /bin; X=1; export Y=2; f() { echo f; }; umask 027" });
    const after = await run(sessions, {
      command: "pwd; echo $X; sh -c 'echo $Y'; f; umask; echo e >&2; (exit 7)",
    });
    expect(after).toMatchObject({ stdout: "/bin\n1\n2\nf\n0027\n", stderr: "e\n", exit: { code: 7 } });
    expect((await run(sessions, { command: "pwd", session: "other" })).stdout).toBe("/\n");
  });

  test("a command that ends its shell leaves the session usable, and says so", async () => {
    const { guest } = await fixture().start();
    const sessions = sessionsOf(guest);
    for (const [command, code] of [
      ["exit 3", 3],
      ["exec sh -c 'exit 4'", 4],
      ["kill -9 $$", 137],
    ] as const) {
      await run(sessions, { command: "X=1" });
      expect(await run(sessions, { command })).toMatchObject({
        exit: { code },
        session: { shell: "restarted" },
      });
      expect((await run(sessions, { command: "echo ${X-fresh}" })).stdout).toBe("fresh\n");
    }
  });

  test("a timeout ends what the command began, and nothing else", async () => {
    const { guest } = await fixture().start();
    const sessions = sessionsOf(guest);
    const [old, fresh] = [uniqueMark(), uniqueMark()];
    await run(sessions, { command: `X=1; sleep ${old} &` });
    const timed = await run(sessions, {
      command: `echo begun; (sleep ${fresh} &); sleep ${fresh}; echo never`,
      timeoutMs: 1500,
    });
    expect(timed).toMatchObject({ stdout: "begun\n", exit: { timedOut: true } });
    await noProcessWith(fresh);
    expect(processesWith(old)).toHaveLength(1);
    expect((await run(sessions, { command: "echo ${X-fresh}" })).stdout).toBe("1\n");
    await sessions.end("main");
    await noProcessWith(old);
  });
}

function sessionsOf(guest: Guest): Sessions {
  const parts = {
    guest: () => guest,
    defaults: () => ({ env: {} }),
    remember: () => undefined,
    newNonce: () => randomBytes(12).toString("base64url"),
    clock: systemClock,
    graceMs: 15_000,
    drivers: shells,
  };
  return new Sessions(parts, []);
}

async function run(
  sessions: Sessions,
  spec: ShellSpecInput,
): Promise<SessionRun & { readonly stdout: string; readonly stderr: string }> {
  const output = new Output();
  const command = await sessions.begin(ShellSpec.parse(spec), output.sink, never);
  const end = await command.ended;
  return { ...end, stdout: output.stdout.toString(), stderr: output.stderr.toString() };
}
