import { expect, test, vi } from "vitest";
import { execSpec, finish, never, Output, run, sh, startUntil } from "./fixture.ts";
import { firstProcessAround, noProcessWith, processWith, uniqueMark } from "./host-processes.ts";
import type { Suite } from "./suite.ts";

export function adoptionSentences({ fixture, subject }: Suite): void {
  const real = subject.capabilities.realProcesses;

  test("a sandbox outlives its daemon and is adopted by the next one", async () => {
    const wish = fixture().wish();
    const before = await fixture().startWish(wish, never);
    await fixture().harness.restart();
    await expect(before.guest.ping()).rejects.toMatchObject({ code: "agent_lost" });
    const after = await fixture().adopt(before);
    expect((await run(after.guest, ["hostname"])).text).toBe(`${wish.hostname}\n`);
    expect(after.running.record).toEqual(before.running.record);
    expect((await after.running.usage()).memoryBytes).toBeGreaterThan(0);
    await fixture().destroy(after);
    expect(await fixture().harness.leftovers()).toEqual([]);
  });

  test("the end of the daemon is not the end of the sandbox", async () => {
    const before = await fixture().start();
    let ended = false;
    void before.running.ended.then(() => (ended = true));
    await fixture().harness.restart();
    const after = await fixture().adopt(before);
    await after.guest.ping();
    expect(ended).toBe(false);
  });

  test("a record that cannot be read is a lost agent, not a crash", async () => {
    const { backend } = fixture().harness;
    for (const record of [null, 7, {}, { containerId: 7 }]) {
      await expect(backend.adopt("conformance-aaaaaaaaaa", record, never)).rejects.toMatchObject({
        code: "agent_lost",
      });
    }
  });

  test("after an adoption limits can be changed", async () => {
    const before = await fixture().start();
    await fixture().harness.restart();
    const after = await fixture().adopt(before);
    if (subject.capabilities.updates.has("pids")) await after.running.update({ pids: 64 });
    expect((await after.running.usage()).pids).toBeLessThanOrEqual(64);
  });

  test.runIf(real)("a sweep removes what an earlier daemon left, and spares what it is to keep", async () => {
    const { harness } = fixture();
    const kept = await fixture().start();
    const adopted = await fixture().start();
    const stranger = await fixture().start();
    await harness.restart();
    await fixture().adopt(adopted);
    expect(await harness.backend.sweep(new Set([kept.id]), never)).toEqual([stranger.id]);
    await fixture().forget(stranger);
    await (await fixture().adopt(kept)).guest.ping();
    await fixture().clear();
    expect(await harness.leftovers()).toEqual([]);
  });

  test.runIf(real)("a running exec is taken up again and not one byte is lost", async () => {
    const before = await fixture().start();
    const lines = 200_000;
    const output = new Output();
    const some = Promise.withResolvers<void>();
    const exec = await before.guest.exec(execSpec(["seq", `${lines}`]), async (stream, offset, chunk) => {
      output.sink(stream, offset, chunk);
      if (output.offsets.stdout > 100_000) some.resolve();
      await new Promise((resolve) => setImmediate(resolve));
    });
    await some.promise;
    await fixture().harness.restart();
    await expect(exec.exit).rejects.toMatchObject({ code: "agent_lost", ambiguous: true });
    const after = await fixture().adopt(before);
    expect(after.guest.live).toEqual([{ channel: exec.channel, state: "running", pid: exec.pid }]);
    const resumed = await after.guest.resume(exec.channel, { ...output.offsets }, output.sink);
    const { text, exit } = await finish(resumed, output);
    const expected = Array.from({ length: lines }, (_, index) => `${index + 1}\n`).join("");
    expect(text === expected).toBe(true);
    expect(exit).toMatchObject({ code: 0, stdoutBytes: expected.length });
  });

  test.runIf(real)("what an exec said and how it ended while nobody was there is told later", async () => {
    const before = await fixture().start();
    const mark = uniqueMark();
    const script = "echo ready; sleep 0.3; echo later; echo bad >&2; exit 7";
    const { exec, output } = await startUntil(before.guest, ["sh", "-c", script, mark], "ready");
    await fixture().harness.restart();
    await noProcessWith(mark);
    const after = await fixture().adopt(before);
    expect(after.guest.live).toEqual([{ channel: exec.channel, state: "exited", pid: exec.pid }]);
    const resumed = await after.guest.resume(exec.channel, { ...output.offsets }, output.sink);
    const { text, stderr, exit } = await finish(resumed, output);
    expect([text, stderr.toString(), exit.code]).toEqual(["ready\nlater\n", "bad\n", 7]);
  });

  test.runIf(real)("stdin goes on after an adoption, and new execs do not mix with old ones", async () => {
    const before = await fixture().start();
    const output = new Output();
    const exec = await before.guest.exec(execSpec(["cat"], { stdin: true }), output.sink);
    await exec.write(Buffer.from("before "));
    await vi.waitUntil(() => output.offsets.stdout === 7);
    await fixture().harness.restart();
    const after = await fixture().adopt(before);
    const resumed = await after.guest.resume(exec.channel, { ...output.offsets }, output.sink);
    expect((await run(after.guest, ["echo", "another"])).text).toBe("another\n");
    await resumed.write(Buffer.from("after"));
    resumed.end();
    expect((await finish(resumed, output)).text).toBe("before after");
  });

  test.runIf(real)("files and background processes live on", async () => {
    const before = await fixture().start();
    await sh(before.guest, "echo kept > /tmp/file; sleep 1000 & echo $! > /tmp/pid");
    await fixture().harness.restart();
    const after = await fixture().adopt(before);
    expect((await sh(after.guest, "cat /tmp/file; kill -0 $(cat /tmp/pid) && echo alive")).text).toBe(
      "kept\nalive\n",
    );
  });

  test.runIf(real)("a sandbox that died meanwhile cannot be adopted and is swept", async () => {
    const before = await fixture().start();
    const mark = uniqueMark();
    await before.guest.exec(execSpec(["sleep", mark]), () => {});
    const agent = firstProcessAround(await processWith(mark));
    await fixture().harness.restart();
    process.kill(agent, "SIGKILL");
    await noProcessWith(mark);
    await expect(fixture().adopt(before)).rejects.toMatchObject({ code: "agent_lost" });
    expect(await fixture().harness.backend.sweep(new Set(), never)).toEqual([before.id]);
    await fixture().forget(before);
    expect(await fixture().harness.leftovers()).toEqual([]);
  });

  test.runIf(real)("a sandbox that was destroyed cannot be adopted", async () => {
    const sandbox = await fixture().start();
    await fixture().destroy(sandbox);
    await expect(fixture().adopt(sandbox)).rejects.toMatchObject({ code: "agent_lost" });
  });
}
