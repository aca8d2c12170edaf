import { createHash, randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { DSecClient, DSecError, type WatchEvent } from "../../src/sdk/index.ts";
import { TestFleet } from "../scheduler/fleet-fixture.ts";

describe("exec", () => {
  test("gives exit code, both streams and how it ended", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const result = await sandbox.runShell("echo out; echo err >&2; exit 7");
    expect(result).toMatchObject({
      exitCode: 7,
      stdout: "out\n",
      stderr: "err\n",
      cause: "exited",
      timedOut: false,
    });
    expect(result.stdoutBytes).toEqual(Buffer.from("out\n"));
    expect(JSON.parse(JSON.stringify(result))).toMatchObject({ exitCode: 7, stdout: "out\n" });
  });

  test("passes argv on exactly as given", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const { stdout } = await sandbox.exec(["printf", "[%s]\n", "a b", "", "c\n'd'", "$HOME", "*"]);
    expect(stdout).toBe("[a b]\n[]\n[c\n'd']\n[$HOME]\n[*]\n");
  });

  test("an option that there is not is refused, not taken for none", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    // as JavaScript without types has it
    const options: object = { timeout: 2 };
    for (const call of [
      async () => sandbox.runShell("sleep 600", options),
      async () => sandbox.exec(["sleep", "600"], options),
      async () => sandbox.execDetached(["sleep", "600"], options),
      async () => sandbox.spawn(["sleep", "600"], options),
    ])
      await expect(call()).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining("no option 'timeout'; there are ") as string,
      });
  });

  test("environment, directory and spec reach the command", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create({ env: { FROM: "sandbox" } });
    const { stdout } = await sandbox.exec(["env"], { env: { NAME: "value with = and\nnewline" } });
    expect(stdout).toContain("FROM=sandbox\n");
    expect(stdout).toContain("NAME=value with = and\nnewline\n");
    expect((await sandbox.exec({ argv: ["pwd"], cwd: "/tmp" })).stdout).toBe("/tmp\n");
  });

  test.each([
    [["no-such-command"], "command_not_found", 127],
    [[], "invalid_argument", 2],
    [["a\0b"], "invalid_argument", 2],
  ])("%j is refused by its own code", async (argv, code, exitCode) => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    await expect(sandbox.exec(argv)).rejects.toMatchObject({ code, exitCode, ambiguous: false });
  });

  test("a command that outlives its time is killed; what it wrote is there, marked", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const result = await sandbox.runShell("echo begun; sleep 600", { timeoutMs: 200 });
    expect(result).toMatchObject({ stdout: "begun\n", exitCode: 124, cause: "timeout", timedOut: true });
  });

  test("an abort ends it on both sides", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const controller = new AbortController();
    const begun = Promise.withResolvers<void>();
    const call = sandbox.runShell("echo begun; sleep 600", {
      signal: controller.signal,
      onStdout: () => begun.resolve(),
    });
    await begun.promise;
    controller.abort();
    await expect(call).rejects.toMatchObject({ code: "cancelled", ambiguous: true });
    await expect.poll(async () => (await sandbox.refresh()).activeExecs).toBe(0);
    await expect(sandbox.exec(["true"], { signal: controller.signal })).rejects.toMatchObject({
      code: "cancelled",
      ambiguous: false,
    });
  });

  test("10 MB of random bytes come back exactly, through both hops", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const input = randomBytes(10_000_000);
    const { stdoutBytes, exitCode } = await sandbox.exec(["cat"], { stdin: input });
    expect(exitCode).toBe(0);
    expect(sha256(stdoutBytes)).toBe(sha256(input));
  });

  test("10 MB with a receiver that takes its time come exactly, too", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const input = randomBytes(10_000_000);
    const hash = createHash("sha256");
    let receiving = 0;
    const { stdoutBytes } = await sandbox.exec(["cat"], {
      stdin: chunksOf(input, 9973),
      async onStdout(bytes) {
        receiving += 1;
        expect(receiving).toBe(1);
        await new Promise(setImmediate);
        hash.update(bytes);
        receiving -= 1;
      },
    });
    expect(stdoutBytes).toHaveLength(0);
    expect(hash.digest("hex")).toBe(sha256(input));
  });

  test("a source of stdin without an end is left when the command has ended", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const left = Promise.withResolvers<void>();
    async function* endless(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield Buffer.alloc(1000);
      } finally {
        left.resolve();
      }
    }
    expect((await sandbox.exec(["true"], { stdin: endless() })).exitCode).toBe(0);
    await left.promise;
  });

  test("output beyond the cap is an error, never cut", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    await expect(sandbox.exec(["yes"], { maxOutputBytes: 100_000 })).rejects.toMatchObject({
      code: "output_too_large",
      details: { limit: 100_000 },
    });
    await expect.poll(async () => (await sandbox.refresh()).activeExecs).toBe(0);
  });

  test("a reader that stops reading stops the process; memory stays bounded on every hop", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    await using yes = await sandbox.spawn(["yes"]);
    const reader = yes.stdout[Symbol.asyncIterator]();
    await reader.next();
    const before = process.memoryUsage().arrayBuffers;
    // each of them lets everything in this process run; `yes` would fill gigabytes meanwhile
    for (let count = 0; count < 100; count += 1) expect((await sandbox.exec(["true"])).exitCode).toBe(0);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(32_000_000);
    expect(yes.stdout.readableLength).toBeLessThan(1_000_000);
  });

  test("a link that is lost in the middle is an ambiguous error, not a result", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const begun = Promise.withResolvers<void>();
    const call = sandbox.runShell("echo begun; sleep 600", { onStdout: () => begun.resolve() });
    await begun.promise;
    const outcome = call.catch((error: unknown) => error);
    await fleet.stopCoordinator();
    expect(await outcome).toMatchObject({ code: "connection_lost", ambiguous: true, exitCode: 125 });
  });

  test("a sandbox that is stopped in the middle says how the command ended", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const begun = Promise.withResolvers<void>();
    const call = sandbox.runShell("echo begun; sleep 600", { onStdout: () => begun.resolve() });
    await begun.promise;
    await sandbox.stop();
    const outcome = await call.catch((error: unknown) => error);
    expect(outcome).toSatisfy(
      (value) => (value instanceof DSecError && value.code !== "connection_lost") || isKilled(value),
    );
    await expect(sandbox.exec(["true"])).rejects.toMatchObject({ code: "sandbox_not_running" });
  });
});

describe("spawn", () => {
  test("streams both ways while the process runs", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    await using cat = await sandbox.spawn(["cat"], { stdin: true });
    const output = cat.stdout[Symbol.asyncIterator]();
    cat.stdin.write("one\n");
    expect(String((await output.next()).value)).toBe("one\n");
    cat.stdin.end("two\n");
    expect(String((await output.next()).value)).toBe("two\n");
    expect((await output.next()).done).toBe(true);
    expect(await cat.exit).toMatchObject({ exitCode: 0, stdoutBytes: 8 });
    expect(cat.execId).not.toBe("");
  });

  test("a signal ends it", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    await using sleep = await sandbox.spawn(["sleep", "600"]);
    sleep.signal("SIGTERM");
    expect(await sleep.exit).toMatchObject({ cause: "signaled", signal: "SIGTERM", exitCode: 143 });
  });

  test("rejects when the process cannot be started", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    await expect(sandbox.spawn(["no-such-command"])).rejects.toMatchObject({ code: "command_not_found" });
  });

  test("a link that is lost reaches readers and exit alike", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const cat = await sandbox.spawn(["cat"], { stdin: true });
    const read = cat.stdout.toArray().catch((error: unknown) => error);
    await fleet.stopCoordinator();
    expect(await read).toMatchObject({ code: "connection_lost" });
    await expect(cat.exit).rejects.toMatchObject({ code: "connection_lost", ambiguous: true });
  });
});

describe("a sandbox", () => {
  test("detached commands are recorded; their log reads to its end", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const exec = await sandbox.execDetached(["echo", "for the record"]);
    const bytes: Buffer[] = [];
    for await (const line of sandbox.logs({ exec, follow: true }))
      if (line.type === "output") bytes.push(Buffer.from(line.data, "base64"));
    expect(String(Buffer.concat(bytes))).toBe("for the record\n");
    expect(await sandbox.execs()).toMatchObject([{ id: exec, state: "exited", recorded: true }]);
    expect((await sandbox.events()).length).toBeGreaterThan(0);
  });

  test("stops twice, waits, and is gone after remove", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create({ name: "worker" });
    const waiting = sandbox.wait();
    expect(await sandbox.wait({ timeoutMs: 10 })).toMatchObject({ state: "running" });
    expect(await sandbox.stop()).toMatchObject({ state: "stopped", endReason: "stopped" });
    expect(await sandbox.stop()).toMatchObject({ state: "stopped" });
    expect(await waiting).toMatchObject({ state: "stopped" });
    await sandbox.remove();
    await expect(sandbox.refresh()).rejects.toMatchObject({ code: "not_found" });
    await expect(fleet.client.get("worker")).rejects.toMatchObject({ code: "not_found" });
  });

  test("is stopped at the end of its block", async () => {
    const fleet = await TestFleet.start();
    let id = "";
    {
      await using sandbox = await fleet.create();
      ({ id } = sandbox);
      expect(sandbox.state).toBe("running");
    }
    expect((await fleet.client.get(id)).state).toBe("stopped");
  });

  test("is touched and updated", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create({ ttlRunningStop: 100, labels: { job: "a" } });
    const before = sandbox.info.deadlineVersion;
    expect((await sandbox.touch({ ttlRunningStop: 500 })).deadlineVersion).toBeGreaterThan(before);
    expect(await sandbox.update({ memoryMb: 64, labels: { job: "b" } })).toMatchObject({
      labels: { job: "b" },
    });
    await expect(sandbox.update({ memoryMb: -1 })).rejects.toMatchObject({ code: "invalid_argument" });
  });
});

describe("a client", () => {
  test("watches: a snapshot, synced, then changes; over a restart of the coordinator", async () => {
    const fleet = await TestFleet.start();
    const first = await fleet.create();
    const events = fleet.client.watch();
    const next = async (): Promise<WatchEvent> => {
      for (;;) {
        const { value, done } = await events.next();
        if (done === true) throw new Error("the watch ended");
        if (value.type !== "ping" && value.type !== "unreachable") return value;
      }
    };
    expect(await next()).toMatchObject({ type: "snapshot", sandbox: { id: first.id } });
    expect(await next()).toMatchObject({ type: "synced" });
    await first.touch();
    expect(await next()).toMatchObject({ type: "changed", sandbox: { id: first.id } });
    await fleet.stopCoordinator();
    await fleet.startCoordinator();
    await first.remove();
    let event = await next();
    while (event.type === "changed") event = await next();
    expect(event).toMatchObject({ type: "removed", id: first.id });
    await events.return();
  });

  test("reclaims idle sandboxes, after having shown them", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create({ labels: { job: "old" } });
    const other = await fleet.create();
    const filter = { label: ["job=old"] };
    const shown = await fleet.client.reclaim({ filter, dryRun: true });
    expect(shown.items).toMatchObject([{ id: sandbox.id, ended: false }]);
    expect((await fleet.client.reclaim({ filter })).items).toMatchObject([{ id: sandbox.id, ended: true }]);
    expect((await sandbox.refresh()).state).toBe("stopped");
    expect((await other.refresh()).state).toBe("running");
  });

  test("a wrong token is told at the first call", async () => {
    const fleet = await TestFleet.start();
    await using client = await DSecClient.open({ address: fleet.address, token: "x".repeat(20) });
    await expect(client.list()).rejects.toMatchObject({ code: "unauthenticated" });
    const sandbox = await fleet.create();
    await using other = await DSecClient.open({ address: fleet.address, token: fleet.coordinator.token });
    expect((await other.get(sandbox.id)).id).toBe(sandbox.id);
  });
});

function isKilled(value: unknown): boolean {
  return typeof value === "object" && value !== null && "cause" in value && value.cause !== "exited";
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

async function* chunksOf(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}
