/** The thread that names are reached through fails, again and again: what the kernel does then, and what comes back. */
import type { Worker } from "node:worker_threads";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { output } from "../temporary-node.ts";
import { GatedNetwork } from "./gated-network.ts";
import type { Internet } from "./internet.ts";
import { answered } from "./outcomes.ts";
import { Trying } from "./trying.ts";

let network: GatedNetwork;
let internet: Internet;
/** Of this process, the newest last. */
const threads: Worker[] = [];
const note = (thread: Worker) => void threads.push(thread);

beforeAll(async () => {
  process.on("worker", note);
  network = await GatedNetwork.open();
  ({ internet } = network);
});
afterAll(async () => {
  process.off("worker", note);
  await network[Symbol.asyncDispose]();
});

test("when the thread ends, names are closed at once and addresses stay as they were, until it is back", async () => {
  await internet.setZone({ "a.example.test": [1] });
  const guest = await network.enter(network.policy(["allow a.example.test", `allow ${internet.address(3)}`]));
  await network.gate.reconcile();
  await guest.query("a.example.test");
  expect(await guest.http(1, "a.example.test")).toMatchObject(answered);
  await using trying = new Trying(guest.visitor, internet.address(4));
  await threads.at(-1)?.terminate();
  const [closed, direct] = await Promise.all([
    guest.http(1, "a.example.test"),
    guest.echo(internet.address(3)),
  ]);
  // No later than the kernel's answer: what waits for nobody would end with the visitor's patience.
  expect(closed).toMatchObject({
    error: expect.stringMatching(/^(?:EHOSTUNREACH|ECONNREFUSED|ECONNRESET)$/),
  });
  expect(direct).toMatchObject({ text: "hello" });
  await vi.waitFor(
    async () =>
      expect(await guest.query("a.example.test")).toMatchObject({ addresses: [internet.address(1)] }),
    { timeout: 20_000 },
  );
  expect(await guest.http(1, "a.example.test")).toMatchObject(answered);
  expect(trying.outcomes.length).toBeGreaterThan(0);
  expect(trying.answered).toEqual([]);
  expect(internet.seen("tcp").filter(({ to }) => to === internet.address(4))).toEqual([]);
  expect(network.interruptions).toHaveLength(1);
  expect(network.gate.totals()).toMatchObject({ interruptions: 1, allowed: expect.any(Number) });
});

test("chains of an earlier daemon that no address leads to are removed by the next one", async () => {
  const chains = async () => {
    const text = await output("nft", "-t", "list", "table", "inet", network.node.instance);
    return [...text.matchAll(/chain (?:out|in)_[0-9a-f]{16}/g)].length;
  };
  const guest = await network.enter(network.policy([`allow ${internet.address(3)}`]));
  const other = await network.enter(network.policy([`allow ${internet.address(4)}`]));
  const kept = network.policy([`allow ${internet.address(5)}`]);
  for (const { id } of [guest, other]) await network.gate.set(id, kept);
  const before = await chains();
  await network.reopen(async () => expect(await chains()).toBe(before));
  expect(await chains()).toBeLessThan(before);
  expect(await guest.echo(internet.address(5))).toMatchObject({ text: "hello" });
  expect(await guest.echo(internet.address(3))).toMatchObject({ error: expect.anything() });
});
