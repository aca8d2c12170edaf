import { createHash, randomBytes } from "node:crypto";
import { expect, test, vi } from "vitest";
import { execSpec, finish, MIB, Output, run, sh } from "./fixture.ts";
import type { Suite } from "./suite.ts";

/** Bytes that may be under way between a process and a sink that does not take them, at most. */
const UNDER_WAY = MIB;

export function streamSentences({ fixture, subject }: Suite): void {
  const real = subject.capabilities.realProcesses;

  test("stdout and stderr are separate", async () => {
    const { guest } = await fixture().start();
    const { stdout, stderr, exit } = await sh(guest, "echo to stdout; echo to stderr >&2");
    expect([stdout.toString(), stderr.toString()]).toEqual(["to stdout\n", "to stderr\n"]);
    expect(exit).toMatchObject({ stdoutBytes: 10, stderrBytes: 10 });
  });

  test("stdin is null unless it is asked for", async () => {
    const { guest } = await fixture().start();
    expect((await run(guest, ["cat"])).exit).toMatchObject({ code: 0, stdoutBytes: 0 });
  });

  test("ten megabytes go in and out again byte for byte", async () => {
    const { guest } = await fixture().start();
    const content = randomBytes(10 * MIB);
    const output = new Output();
    const exec = await guest.exec(execSpec(["cat"], { stdin: true }), output.sink);
    for (let at = 0; at < content.length; at += 50_000) await exec.write(content.subarray(at, at + 50_000));
    exec.end();
    const { stdout, exit } = await finish(exec, output);
    expect(exit).toMatchObject({ code: 0, stdoutBytes: content.length });
    expect(stdout.equals(content)).toBe(true);
  });

  test("writing to a process that has ended is no error", async () => {
    const { guest } = await fixture().start();
    const exec = await guest.exec(execSpec(["true"], { stdin: true }), () => {});
    await exec.exit;
    await exec.write(Buffer.alloc(MIB));
    exec.end();
    exec.release();
    expect((await run(guest, ["echo", "still there"])).text).toBe("still there\n");
  });

  test("a sink that takes nothing stops the process, in bounded memory", async () => {
    const { guest } = await fixture().start();
    const gate = Promise.withResolvers<void>();
    const output = new Output();
    const exec = await guest.exec(execSpec(["yes"]), async (stream, offset, chunk) => {
      output.sink(stream, offset, chunk);
      await gate.promise;
    });
    await vi.waitUntil(() => output.offsets.stdout > 0);
    for (let turn = 0; turn < 20; turn += 1) await guest.ping();
    expect(output.offsets.stdout).toBeLessThan(UNDER_WAY);
    exec.signal(9, "tree");
    gate.resolve();
    const { exit, stdout } = await finish(exec, output);
    expect(exit.stdoutBytes).toBe(stdout.length);
    expect(stdout.length).toBeLessThan(UNDER_WAY);
  });

  test("a slow sink does not slow another exec", async () => {
    const { guest } = await fixture().start();
    const gate = Promise.withResolvers<void>();
    const exec = await guest.exec(execSpec(["yes"]), () => gate.promise);
    expect((await run(guest, ["echo", "quick"])).text).toBe("quick\n");
    exec.signal(9, "tree");
    gate.resolve();
    expect(await exec.exit).toMatchObject({ signal: 9 });
    exec.release();
  });

  test("the exit is told only after the sink has taken every byte", async () => {
    const { guest } = await fixture().start();
    const gate = Promise.withResolvers<void>();
    let settled = false;
    const reached = Promise.withResolvers<void>();
    const exec = await guest.exec(execSpec(["echo", "last words"]), async () => {
      reached.resolve();
      await gate.promise;
    });
    void exec.exit.then(() => (settled = true));
    await reached.promise;
    for (let turn = 0; turn < 5; turn += 1) await guest.ping();
    expect(settled).toBe(false);
    gate.resolve();
    expect(await exec.exit).toMatchObject({ code: 0, stdoutBytes: 11 });
    exec.release();
  });

  test.runIf(real)("ten megabytes of random bytes arrive byte for byte at a slow reader", async () => {
    const { guest } = await fixture().start();
    const output = new Output();
    const exec = await guest.exec(
      execSpec([
        "sh",
        "-c",
        "head -c 10485760 /dev/urandom > /tmp/r && sha256sum < /tmp/r >&2 && cat /tmp/r",
      ]),
      async (stream, offset, chunk) => {
        output.sink(stream, offset, chunk);
        await new Promise((resolve) => setImmediate(resolve));
      },
    );
    const { stdout, stderr } = await finish(exec, output);
    expect(stdout.length).toBe(10 * MIB);
    expect(stderr.toString()).toContain(createHash("sha256").update(stdout).digest("hex"));
  });

  test.runIf(real)("a terminal has the asked size, one stream, and can be resized", async () => {
    const { guest } = await fixture().start();
    const script = 'stty size; trap "stty size; exit 3" WINCH; echo ready >&2; sleep 1000 & wait';
    const output = new Output();
    const ready = Promise.withResolvers<void>();
    const exec = await guest.exec(
      execSpec(["sh", "-c", script], { tty: { rows: 33, cols: 101 }, stdin: true }),
      (stream, offset, chunk) => {
        output.sink(stream, offset, chunk);
        if (output.stdout.includes("ready")) ready.resolve();
      },
    );
    await ready.promise;
    exec.resize(44, 120);
    const { text, exit } = await finish(exec, output);
    expect(text).toBe("33 101\r\nready\r\n44 120\r\n");
    expect(exit).toMatchObject({ code: 3, stderrBytes: 0 });
  });

  test.runIf(real)("ten megabytes go through a raw terminal byte for byte, both ways", async () => {
    const { guest } = await fixture().start();
    const content = randomBytes(10 * MIB);
    const script = `stty raw -echo; echo ready; head -c ${content.length}`;
    const output = new Output();
    const ready = Promise.withResolvers<void>();
    const exec = await guest.exec(
      execSpec(["sh", "-c", script], { tty: { rows: 24, cols: 80 }, stdin: true }),
      (stream, offset, chunk) => {
        output.sink(stream, offset, chunk);
        ready.resolve();
      },
    );
    await ready.promise;
    for (let at = 0; at < content.length; at += 30_000) await exec.write(content.subarray(at, at + 30_000));
    const { stdout } = await finish(exec, output);
    expect(stdout.subarray("ready\n".length).equals(content)).toBe(true);
  });
}
