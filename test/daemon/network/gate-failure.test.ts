/** The thread that names are reached through fails, again and again: what the kernel does then, and what comes back. */
import type { Worker } from "node:worker_threads";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { output } from "../temporary-node.ts";
import { GatedNetwork, type Guest } from "./gated-network.ts";
import { Internet } from "./internet.ts";

let internet: Internet;
let network: GatedNetwork;
/** Of this process, the newest last. */
const threads: Worker[] = [];
const note = (thread: Worker) => void threads.push(thread);

beforeAll(async () => {
  process.on("worker", note);
  internet = await Internet.start();
  network = await GatedNetwork.open(internet);
});
afterAll(async () => {
  process.off("worker", note);
  await network[Symbol.asyncDispose]();
  await internet[Symbol.asyncDispose]();
});

function echo(guest: Guest, server: number) {
  return guest.visitor.try({ kind: "tcp", host: internet.address(server), port: 7, send: "hello" });
}

function http(guest: Guest, server: number, host: string) {
  const send = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  return guest.visitor.try({ kind: "tcp", host: internet.address(server), port: 80, send });
}

function query(guest: Guest, name: string) {
  return guest.visitor.try({ kind: "query", server: network.gateway, name });
}

test("when the thread ends, names are closed at once and addresses stay as they were, until it is back", async () => {
  await internet.setZone({ "a.example.test": [1] });
  const guest = await network.enter(network.policy(["allow a.example.test", `allow ${internet.address(3)}`]));
  await network.gate.reconcile();
  await query(guest, "a.example.test");
  expect(await http(guest, 1, "a.example.test")).toMatchObject({ text: expect.stringContaining("200 OK") });
  const over = new AbortController();
  const outcomes: unknown[] = [];
  const probing = (async () => {
    while (!over.signal.aborted) outcomes.push((await echo(guest, 4)).text);
  })();
  await threads.at(-1)?.terminate();
  const [closed, direct] = await Promise.all([http(guest, 1, "a.example.test"), echo(guest, 3)]);
  // No later than the kernel's answer: what waits for nobody would end with the visitor's patience.
  expect(closed).toMatchObject({
    error: expect.stringMatching(/^(?:EHOSTUNREACH|ECONNREFUSED|ECONNRESET)$/),
  });
  expect(direct).toMatchObject({ text: "hello" });
  await vi.waitFor(
    async () =>
      expect(await query(guest, "a.example.test")).toMatchObject({ addresses: [internet.address(1)] }),
    { timeout: 20_000 },
  );
  expect(await http(guest, 1, "a.example.test")).toMatchObject({ text: expect.stringContaining("200 OK") });
  over.abort();
  await probing;
  expect(outcomes.length).toBeGreaterThan(0);
  expect(outcomes.filter((text) => text !== undefined)).toEqual([]);
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
  await network.reopen(internet, async () => expect(await chains()).toBe(before));
  expect(await chains()).toBeLessThan(before);
  expect(await echo(guest, 5)).toMatchObject({ text: "hello" });
  expect(await echo(guest, 3)).toMatchObject({ error: expect.anything() });
});
