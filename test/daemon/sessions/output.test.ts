import { createHash, randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ShellSpec } from "../../../src/protocol/session.ts";
import { memoryOf } from "../../agent/process-state.ts";
import { runIn, type SessionFixture, startSessions, testedShells } from "./session-fixture.ts";

const MIB = 1024 * 1024;
const never = new AbortController().signal;

describe.each(Object.entries(testedShells))("the output of a session of %s", (_name, driver) => {
  let fixture: SessionFixture;

  beforeAll(async () => {
    fixture = await startSessions({ driver });
  });

  afterAll(async () => {
    await fixture[Symbol.asyncDispose]();
  });

  test("is exact for 50 MB of random bytes and a reader that takes its time", async () => {
    const bytes = randomBytes(50 * MIB);
    writeFileSync(`${fixture.directory}/random`, bytes);
    const hash = createHash("sha256");
    let received = 0;
    const run = await runIn(
      fixture.sessions,
      ShellSpec.parse({ command: "cat random; (exit 6)" }),
      async (stream, offset, chunk) => {
        expect([stream, offset]).toEqual(["stdout", received]);
        received += chunk.length;
        if (received % 7 === 0) await setImmediate();
        hash.update(chunk);
      },
      never,
    );
    expect(run.exit).toMatchObject({ code: 6, stdoutBytes: bytes.length, stderrBytes: 0 });
    expect(hash.digest("hex")).toBe(createHash("sha256").update(bytes).digest("hex"));
    expect((await fixture.run("echo next")).stdout).toBe("next\n");
  });

  test("is exact on both streams at once", async () => {
    const run = await fixture.run("head -c 3000000 /dev/zero & head -c 2000000 /dev/zero >&2; wait");
    expect([run.exit.stdoutBytes, run.exit.stderrBytes]).toEqual([3_000_000, 2_000_000]);
  });

  test("ends with the command although background processes keep the streams", async () => {
    const session = "background";
    const first = await fixture.run(
      "(while :; do echo noise; sleep 0.01; done) & echo $! >pid; sleep 0.1; echo x",
      {
        session,
      },
    );
    expect(first.stdout).toMatch(/noise\n/);
    expect(first.stdout).toMatch(/x\n/);
    // what it writes while a command runs is that command's; what it writes in between is dropped
    const second = await fixture.run("sleep 0.1; kill $(cat pid); wait; echo y", { session });
    expect(second.stdout).toMatch(/^(noise\n)*y\n$/);
    expect((await fixture.run("echo z", { session })).stdout).toBe("z\n");
  });

  test("of a background process is never mistaken for the end", async () => {
    const session = "flood";
    await fixture.run("yes & echo $! >flood", { session });
    const run = await fixture.run("echo x >&2; (exit 5)", { session });
    expect([run.exit.code, run.stderr]).toEqual([5, "x\n"]);
    const last = await fixture.run("kill -9 $(cat flood); (exit 6)", { session });
    expect(last.exit.code).toBe(6);
  });

  test("waits for its reader, and holds nothing", async () => {
    let received = 0;
    const gate = Promise.withResolvers<void>();
    const running = runIn(
      fixture.sessions,
      ShellSpec.parse({ session: "slow", command: "echo $$ >slow; yes | head -c 10000000" }),
      async (_stream, _offset, chunk) => {
        received += chunk.length;
        await gate.promise;
      },
      never,
    );
    await expect.poll(() => received).toBeGreaterThan(0);
    const before = received;
    // others are not held up
    expect((await fixture.run("echo free", { session: "free" })).stdout).toBe("free\n");
    expect(received).toBe(before);
    expect(memoryOf(fixture.agent.pid, "Rss")).toBeLessThan(4 * MIB);
    gate.resolve();
    expect((await running).exit).toMatchObject({ code: 0, stdoutBytes: 10_000_000 });
  });

  test("that its reader refuses ends the command with the reader's error, and no other", async () => {
    const session = "refused";
    await fixture.run("X=1", { session });
    const running = runIn(
      fixture.sessions,
      ShellSpec.parse({ session, command: "yes" }),
      () => {
        throw new Error("reader is gone");
      },
      never,
    );
    await expect(running).rejects.toThrow("reader is gone");
    expect((await fixture.run("echo ok", { session })).stdout).toBe("ok\n");
  });
});
