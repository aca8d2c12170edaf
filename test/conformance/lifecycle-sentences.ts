import { expect, test } from "vitest";
import { execSpec, never, run, sh, startUntil } from "./fixture.ts";
import { firstProcessAround, processWith, uniqueMark } from "./host-processes.ts";
import type { Suite } from "./suite.ts";

/** Milliseconds after which a start is aborted: before it, in its stages, and about when it is done. */
const ABORT_AFTER_MS = [0, 1, 5, 10, 20, 40, 80, 120, 160, 240];

export function lifecycleSentences({ fixture, subject }: Suite): void {
  const real = subject.capabilities.realProcesses;

  test("a started sandbox answers", async () => {
    const { guest } = await fixture().start();
    await guest.ping();
    expect(guest.live).toEqual([]);
  });

  test("a start that fails says why by its code and leaves nothing", async () => {
    const { harness } = fixture();
    const prepared = await harness.prepareImpossible(fixture().wish());
    await expect(harness.backend.start(prepared.request, never)).rejects.toMatchObject({
      code: prepared.code,
    });
    await prepared.release();
    expect(await harness.leftovers()).toEqual([]);
  });

  test("an id that is in use is refused, and the sandbox that has it goes on", async () => {
    const { harness } = fixture();
    const prepared = await harness.prepare(fixture().wish());
    const running = await harness.backend.start(prepared.request, never);
    await prepared.started();
    await expect(harness.backend.start(prepared.request, never)).rejects.toMatchObject({ code: "conflict" });
    await running.guest.ping();
    await running.destroy();
    await prepared.release();
    expect(await harness.leftovers()).toEqual([]);
  });

  test("a start whose signal has fired already does nothing", async () => {
    const abort = new AbortController();
    abort.abort();
    await expect(fixture().startWish(fixture().wish(), abort.signal)).rejects.toMatchObject({
      code: "cancelled",
    });
    expect(await fixture().harness.leftovers()).toEqual([]);
  });

  test("a start that is aborted leaves nothing, wherever it was", async () => {
    for (const ms of ABORT_AFTER_MS) {
      const outcome = await fixture()
        .startWish(fixture().wish(), AbortSignal.timeout(ms))
        .then(
          () => "started",
          (error: { code: string }) => error.code,
        );
      expect(["started", "cancelled", "start_timeout"]).toContain(outcome);
      await fixture().clear();
      expect(await fixture().harness.leftovers()).toEqual([]);
    }
  });

  test("destroying is idempotent, also at the same time", async () => {
    const { running } = await fixture().start();
    await Promise.all([running.destroy(), running.destroy()]);
    await running.destroy();
    await expect(running.guest.ping()).rejects.toMatchObject({ code: "agent_lost" });
  });

  test("destroying while execs run makes them fail by a lost agent", async () => {
    const sandbox = await fixture().start();
    const execs = await Promise.all(
      ["yes", "cat"].map((command) => sandbox.guest.exec(execSpec([command], { stdin: true }), () => {})),
    );
    await fixture().destroy(sandbox);
    for (const exec of execs) await expect(exec.exit).rejects.toMatchObject({ code: "agent_lost" });
  });

  test("destroying does not count as an end of its own", async () => {
    const sandbox = await fixture().start();
    let ended = false;
    void sandbox.running.ended.then(() => (ended = true));
    await fixture().destroy(sandbox);
    await sandbox.guest.closed;
    await new Promise((resolve) => setImmediate(resolve));
    expect(ended).toBe(false);
  });

  test("what it uses can be asked", async () => {
    const { running, guest } = await fixture().start();
    await run(guest, ["true"]);
    const usage = await running.usage();
    expect(usage.memoryBytes).toBeGreaterThan(0);
    expect(usage.memoryBytes).toBeLessThan(128 * 1_048_576);
    expect(usage.pids).toBeGreaterThanOrEqual(1);
    expect(usage.cpuSeconds).toBeGreaterThanOrEqual(0);
    expect(usage.oomKills).toBe(0);
  });

  test.runIf(real)("CPU time and processes are counted", async () => {
    const { running, guest } = await fixture().start();
    const before = await running.usage();
    await sh(guest, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
    const { exec } = await startUntil(
      guest,
      ["sh", "-c", "sleep 1000 & sleep 1000 & echo ready; wait"],
      "ready",
    );
    const after = await running.usage();
    expect(after.cpuSeconds).toBeGreaterThan(before.cpuSeconds + 0.02);
    expect(after.pids).toBe(before.pids + 3);
    exec.release();
  });

  test.runIf(real)("an agent that dies is reported", async () => {
    const sandbox = await fixture().start();
    const mark = uniqueMark();
    await sandbox.guest.exec(execSpec(["sleep", mark]), () => {});
    process.kill(firstProcessAround(await processWith(mark)), "SIGKILL");
    expect(await sandbox.running.ended).toMatchObject({ reason: "agent_lost" });
    await fixture().destroy(sandbox);
    expect(await fixture().harness.leftovers()).toEqual([]);
  });

  test("a sweep spares what is being started or was, whatever it is told to keep", async () => {
    const { backend } = fixture().harness;
    const sandbox = await fixture().start();
    const starting = fixture().start();
    expect(await backend.sweep(new Set(), never)).toEqual([]);
    await sandbox.guest.ping();
    await (await starting).guest.ping();
  });

  test("fifty sandboxes start side by side, are apart, and leave nothing", async () => {
    const { harness } = fixture();
    const sandboxes = await Promise.all(Array.from({ length: 50 }, () => fixture().start()));
    const names = await Promise.all(sandboxes.map(({ guest }) => run(guest, ["hostname"])));
    expect(new Set(names.map(({ text }) => text)).size).toBe(50);
    await Promise.all(
      sandboxes.map(({ guest, id }) => guest.files.write("/tmp/mine", chunks(id), { size: id.length })),
    );
    for (const { guest, id } of sandboxes) {
      let content = "";
      await guest.files.read("/tmp/mine", {}, (chunk) => void (content += chunk.toString()));
      expect(content).toBe(id);
    }
    await Promise.all(sandboxes.map((sandbox) => fixture().destroy(sandbox)));
    expect(await harness.leftovers()).toEqual([]);
  }, 120_000);
}

async function* chunks(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
