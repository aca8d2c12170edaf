import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { output } from "../temporary-node.ts";
import { GatedNetwork } from "./gated-network.ts";
import { Internet } from "./internet.ts";

let internet: Internet;
let network: GatedNetwork;

beforeAll(async () => {
  internet = await Internet.start();
  network = await GatedNetwork.open(internet);
});
afterAll(async () => {
  await network[Symbol.asyncDispose]();
  await internet[Symbol.asyncDispose]();
});

test("an allowed name is resolved, and reached over TLS and HTTP", async () => {
  await internet.setZone({ "a.example.test": [1], "b.example.test": [2] });
  const guest = await network.enter(network.policy(["allow a.example.test"]));
  const { visitor } = guest;
  expect(await visitor.try({ kind: "query", server: network.gateway, name: "a.example.test" })).toMatchObject(
    {
      addresses: [internet.address(1)],
    },
  );
  expect(
    await visitor.try({
      kind: "https",
      host: internet.address(1),
      serverName: "a.example.test",
      ca: internet.caCertificate,
    }),
  ).toMatchObject({
    text: expect.stringContaining(`"server":"${internet.address(1)}","name":"a.example.test"`),
  });
  expect(
    await visitor.try({
      kind: "tcp",
      host: internet.address(1),
      port: 80,
      send: "GET / HTTP/1.1\r\nHost: a.example.test\r\n\r\n",
    }),
  ).toMatchObject({ text: expect.stringContaining(`"host":"a.example.test"`) });
});

test("a name that is not allowed does not exist, and nobody else is asked for it", async () => {
  await internet.setZone({ "b.example.test": [2] });
  const guest = await network.enter(network.policy(["allow a.example.test"]));
  expect(
    await guest.visitor.try({ kind: "query", server: network.gateway, name: "b.example.test" }),
  ).toMatchObject({ error: "ENOTFOUND" });
  expect(internet.seen("dns").map(({ text }) => text)).not.toContain("b.example.test");
  await vi.waitFor(async () =>
    expect(await network.decisions(guest)).toMatchObject([
      { stage: "query", allowed: false, name: "b.example.test", by: { kind: "default" } },
    ]),
  );
});

test("an address is refused at once, distinctly, and logged; an allowed one is reached without the proxy", async () => {
  const guest = await network.enter(network.policy([`allow ${internet.address(3)}`]));
  const refused = await guest.visitor.try({ kind: "tcp", host: internet.address(4), port: 7, send: "hello" });
  expect(refused).toMatchObject({ error: "EHOSTUNREACH" });
  expect(
    await guest.visitor.try({ kind: "tcp", host: internet.address(3), port: 7, send: "hello" }),
  ).toMatchObject({ text: "hello" });
  expect(
    await guest.visitor.try({ kind: "udp", host: internet.address(3), port: 7, send: "hello" }),
  ).toMatchObject({ text: "hello" });
  await vi.waitFor(async () =>
    expect(await network.decisions(guest)).toMatchObject([
      {
        stage: "connect",
        allowed: false,
        protocol: "tcp",
        address: internet.address(4),
        port: 7,
        by: { kind: "default" },
      },
    ]),
  );
});

test("an allowed name opens no address of the node, also one that it was given since; a rule for the address does", async () => {
  const address = `203.0.113.${randomInt(1, 255)}`;
  const server = createServer((socket) => {
    socket.on("error", () => undefined).end("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnode");
  });
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("not a port");
  const { port } = bound;
  await internet.setZone({ "late.example.test": [address] });
  const guest = await network.enter(network.policy([`allow late.example.test:${port}`]));
  const send = "GET / HTTP/1.1\r\nHost: late.example.test\r\n\r\n";
  const reach = () => guest.visitor.try({ kind: "tcp", host: address, port, send });
  await output("ip", "address", "add", `${address}/32`, "dev", "lo");
  try {
    await guest.visitor.try({ kind: "query", server: network.gateway, name: "late.example.test" });
    expect(await reach()).toMatchObject({ error: "EHOSTUNREACH" });
    await network.gate.set(guest.id, network.policy([`allow ${address}:${port}`]));
    expect(await reach()).toMatchObject({ text: expect.stringContaining("node") });
  } finally {
    await output("ip", "address", "del", `${address}/32`, "dev", "lo");
    server.close();
  }
});
