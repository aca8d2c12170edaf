import { expect, test, vi } from "vitest";
import type { Guest } from "../../src/agent/guest.ts";
import { sh, startUntil } from "./fixture.ts";
import { noProcessWith, processesWith, uniqueMark } from "./host-processes.ts";
import type { Suite } from "./suite.ts";

export function processSentences({ fixture }: Suite): void {
  test("a process in the background that holds the pipes does not delay the exit", async () => {
    const { guest } = await fixture().start();
    const { text, exit } = await sh(guest, "sleep 1000 & echo done");
    expect([text, exit.code]).toEqual(["done\n", 0]);
  });

  test("a timeout kills children, grandchildren and those who left the process group", async () => {
    const { guest } = await fixture().start();
    const mark = uniqueMark();
    const script = `sleep ${mark} & sh -c 'sleep ${mark} & wait' & setsid sleep ${mark} & wait`;
    const { exit } = await sh(guest, script, { timeoutMs: 1500 });
    expect(exit.timedOut).toBe(true);
    await noProcessWith(mark);
  });

  test("a signal to the group reaches the children", async () => {
    const { guest } = await fixture().start();
    const mark = uniqueMark();
    const { exec } = await startUntil(
      guest,
      ["sh", "-c", `sleep ${mark} & sleep ${mark} & echo ready; wait`],
      "ready",
    );
    // Forked when it says so, but not yet running sleep.
    await expect.poll(() => processesWith(mark)).toHaveLength(2);
    exec.signal(15, "group");
    expect(await exec.exit).toMatchObject({ signal: 15 });
    await noProcessWith(mark);
    exec.release();
  });

  test("a signal to the process alone leaves the children", async () => {
    const { guest } = await fixture().start();
    const mark = uniqueMark();
    const { exec } = await startUntil(guest, ["sh", "-c", `sleep ${mark} & echo ready; wait`], "ready");
    await expect.poll(() => processesWith(mark)).toHaveLength(1);
    exec.signal(15, "process");
    expect(await exec.exit).toMatchObject({ signal: 15 });
    expect(processesWith(mark)).toHaveLength(1);
    exec.release();
  });

  test("an exec that is released while it runs is killed with its tree", async () => {
    const { guest } = await fixture().start();
    const mark = uniqueMark();
    const { exec } = await startUntil(guest, ["sh", "-c", `sleep ${mark} & echo ready; wait`], "ready");
    exec.release();
    await expect(exec.exit).rejects.toMatchObject({ code: "cancelled" });
    await noProcessWith(mark);
  });

  test("orphans are reaped", async () => {
    const { guest } = await fixture().start();
    for (let round = 0; round < 10; round += 1) await sh(guest, "sh -c 'true &' & sh -c 'sleep 0.01 &'");
    await expect.poll(() => statesInside(guest), { timeout: 10_000 }).not.toContain("Z");
  });

  test("destroying kills double-forked processes and those in sessions of their own", async () => {
    const sandbox = await fixture().start();
    const mark = uniqueMark();
    const inSession = `setsid sh -c 'sleep ${mark} & sleep ${mark}'`;
    await sh(sandbox.guest, `(${inSession} &); (sleep ${mark} &); (trap "" HUP; sleep ${mark} &)`);
    await vi.waitUntil(() => processesWith(mark).length === 4, { timeout: 10_000 });
    await fixture().destroy(sandbox);
    expect(processesWith(mark)).toEqual([]);
  });

  test("destroying kills what stopped itself and what ignores every signal it can", async () => {
    const sandbox = await fixture().start();
    const mark = uniqueMark();
    await sh(sandbox.guest, `(trap '' 1 2 3 15; sh -c 'kill -STOP $$; sleep ${mark}' 0 ${mark} &)`);
    await vi.waitUntil(() => processesWith(mark).length === 1, { timeout: 10_000 });
    await fixture().destroy(sandbox);
    expect(processesWith(mark)).toEqual([]);
  });
}

/** One letter per process. */
async function statesInside(guest: Guest): Promise<string> {
  const { text } = await sh(guest, 'cat /proc/[0-9]*/stat 2>/dev/null | sed "s/.*) //; s/ .*//"');
  return text.replaceAll("\n", "");
}
