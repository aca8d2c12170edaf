import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { NetworkDecision } from "../../../src/protocol/network-decision.ts";
import { output } from "../temporary-node.ts";
import { GatedNetwork, type Guest } from "./gated-network.ts";
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

/** The second where more was refused in a second than the kernel explains. */
const refused = { error: expect.stringMatching(/^(?:EHOSTUNREACH|ECONNREFUSED)$/) };

function query(guest: Guest, name: string, type = "A") {
  return guest.visitor.try({ kind: "query", server: network.gateway, name, type });
}

function https(guest: Guest, server: number, serverName?: string) {
  const ca = internet.caCertificate;
  const host = internet.address(server);
  return guest.visitor.try({ kind: "https", host, ca, ...(serverName !== undefined && { serverName }) });
}

function http(guest: Guest, server: number, ...hosts: readonly string[]) {
  const send = hosts.map((host) => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`).join("");
  return guest.visitor.try({ kind: "tcp", host: internet.address(server), port: 80, send });
}

function echo(guest: Guest, host: string, kind: "tcp" | "udp" = "tcp") {
  return guest.visitor.try({ kind, host, port: 7, send: "hello" });
}

/** Tries an address all the time, until it is stopped. */
function probe(guest: Guest, host: string): { outcomes: unknown[]; stop: () => Promise<void> } {
  const outcomes: unknown[] = [];
  const over = new AbortController();
  const probing = (async () => {
    while (!over.signal.aborted) outcomes.push(await echo(guest, host));
  })();
  return {
    outcomes,
    stop: async () => {
      over.abort();
      await probing;
    },
  };
}

/** Waits for a line of the sandbox's log. */
async function logged(guest: Guest, decision: Partial<NetworkDecision>): Promise<void> {
  await vi.waitFor(
    async () => expect(await network.decisions(guest)).toContainEqual(expect.objectContaining(decision)),
    { timeout: 5000 },
  );
}

function unchecked(reason: string) {
  return { by: { kind: "unchecked", reason } } as Partial<NetworkDecision>;
}

describe("names", () => {
  test("queries carry nothing out: neither names that are not allowed, nor other types of those that are", async () => {
    await internet.setZone({ "tunnel.example.test": [1] });
    const guest = await network.enter(network.policy(["allow tunnel.example.test"]));
    for (const name of [
      "c2VjcmV0.evil.test",
      "c2VjcmV0.tunnel.example.test",
      "tunnel.example.test.evil.test",
    ])
      expect(await query(guest, name)).toMatchObject({ error: "ENOTFOUND" });
    for (const type of ["TXT", "MX", "AAAA", "SRV"])
      expect(await query(guest, "tunnel.example.test", type)).toMatchObject({ error: "ENODATA" });
    expect(await query(guest, "tunnel.example.test")).toMatchObject({ addresses: [internet.address(1)] });
    const asked = internet.seen("dns").map(({ text }) => text);
    expect(asked.filter((name) => /tunnel|c2VjcmV0/i.test(name))).toEqual(["tunnel.example.test"]);
    await logged(guest, { stage: "query", name: "c2vjcmv0.evil.test", allowed: false });
  });

  test("no other name server is reached, by UDP or TCP", async () => {
    const guest = await network.enter(network.policy(["allow a.example.test"]));
    const { address } = internet.nameServer;
    expect(
      await guest.visitor.try({ kind: "query", server: address, name: "other.example.test" }),
    ).toMatchObject({
      error: expect.stringMatching(/ECONNREFUSED|ETIMEOUT/),
    });
    expect(await guest.visitor.try({ kind: "tcp", host: address, port: 53, send: "x" })).toMatchObject(
      refused,
    );
    expect(internet.seen("dns").map(({ text }) => text)).not.toContain("other.example.test");
    await logged(guest, { stage: "connect", protocol: "udp", address, port: 53, allowed: false });
  });

  test("an allowed name that resolves to the node, a neighbour or metadata opens none of them", async () => {
    const neighbour = await network.enter();
    const own = ["169.254.169.254", network.gateway, neighbour.address, "127.0.0.1"];
    await internet.setZone({ "rebind.example.test": own, "good.example.test": [2] });
    const guest = await network.enter(
      network.policy(["allow rebind.example.test:1-65535", "allow good.example.test"]),
    );
    await query(guest, "rebind.example.test");
    for (const address of own.slice(0, 3)) expect(await echo(guest, address)).toMatchObject(refused);
    await logged(guest, { address: "169.254.169.254", by: { kind: "protected", range: "metadata" } });
    await query(guest, "good.example.test");
    expect(await https(guest, 2, "good.example.test")).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
  });
});

describe("TLS and HTTP", () => {
  test("an allowed server name reaches only the address that it resolves to", async () => {
    await internet.setZone({ "sni.example.test": [1], "also.example.test": [2] });
    const guest = await network.enter(network.policy(["allow sni.example.test", "allow also.example.test"]));
    await query(guest, "sni.example.test");
    await query(guest, "also.example.test");
    expect(await https(guest, 1, "sni.example.test")).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
    expect(await https(guest, 3, "sni.example.test")).toMatchObject(refused);
    expect((await https(guest, 2, "sni.example.test")).error).toMatch(/EPROTO|ECONNRESET/);
    await logged(guest, {
      name: "sni.example.test",
      address: internet.address(2),
      ...unchecked("name_mismatch"),
    });
    expect((await https(guest, 1, "evil.test")).error).toMatch(/EPROTO|ECONNRESET/);
    expect((await https(guest, 1)).error).toMatch(/EPROTO|ECONNRESET/);
    await logged(guest, unchecked("no_server_name"));
    expect(internet.seen("https").filter(({ text }) => text.startsWith("evil"))).toEqual([]);
  });

  test("Host is checked for each request of a connection, and CONNECT is refused", async () => {
    await internet.setZone({ "host.example.test": [1] });
    const guest = await network.enter(network.policy(["allow host.example.test"]));
    await query(guest, "host.example.test");
    expect(await http(guest, 1, "host.example.test")).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
    expect(await http(guest, 1, "evil.test")).toMatchObject({
      text: expect.stringContaining("403 Forbidden"),
    });
    const host = internet.address(1);
    const keep = (send: string) => guest.visitor.try({ kind: "use", as: "http", send });
    const first = "GET /one HTTP/1.1\r\nHost: host.example.test\r\n\r\n";
    expect(await guest.visitor.try({ kind: "open", as: "http", host, port: 80, send: first })).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
    expect(await keep("GET /two HTTP/1.1\r\nHost: evil.test\r\n\r\n")).toMatchObject({
      text: expect.stringContaining("403 Forbidden"),
    });
    const connect = "CONNECT evil.test:443 HTTP/1.1\r\nHost: host.example.test\r\n\r\n";
    expect(await guest.visitor.try({ kind: "tcp", host, port: 80, send: connect })).toMatchObject({
      text: expect.stringContaining("403 Forbidden"),
    });
    await logged(guest, { stage: "name", name: "evil.test", allowed: false });
    expect(internet.seen("http").filter(({ text }) => text.startsWith("evil"))).toEqual([]);
  });

  test("what a name's rule does not cover is refused: other ports, other protocols, and what says no name", async () => {
    await internet.setZone({ "port.example.test": [1], "quic.example.test": [2] });
    const guest = await network.enter(
      network.policy(["allow port.example.test", "allow quic.example.test:443/udp"]),
    );
    await query(guest, "port.example.test");
    await query(guest, "quic.example.test");
    const udp = (server: number) =>
      guest.visitor.try({ kind: "udp", host: internet.address(server), port: 443, send: "hello" });
    expect(await echo(guest, internet.address(1))).toMatchObject(refused);
    expect(await udp(1)).toMatchObject({ error: expect.stringMatching(/EHOSTUNREACH|timeout/) });
    expect(await udp(2)).toMatchObject({ text: "hello" });
    expect(await https(guest, 2, "quic.example.test")).toMatchObject(refused);
    expect(
      await guest.visitor.try({
        kind: "tcp",
        host: internet.address(1),
        port: 443,
        send: "\0\0\0\0 no name",
      }),
    ).toMatchObject({ error: "ECONNRESET" });
    await logged(guest, unchecked("no_name"));
  });
});

describe("addresses", () => {
  test("an open policy opens neither the node, nor neighbours, nor metadata; an explicit rule does", async () => {
    const served: string[] = [];
    const server = createServer((socket) => {
      served.push(socket.remoteAddress ?? "");
      socket.on("error", () => undefined).end("node");
    });
    server.listen(0, "0.0.0.0");
    await once(server, "listening");
    const bound = server.address();
    if (bound === null || typeof bound === "string") throw new Error("not a port");
    const neighbour = await network.enter();
    const guest = await network.enter(network.policy([], "allow"));
    const knock = (host: string) => guest.visitor.try({ kind: "tcp", host, port: bound.port, send: "x" });
    expect(await echo(guest, internet.address(1))).toMatchObject({ text: "hello" });
    const others = [network.gateway, neighbour.address, internet.network.replace("0/24", "254")];
    for (const host of [...others, "169.254.169.254"]) expect(await knock(host)).toMatchObject(refused);
    expect(served).toEqual([]);
    await network.gate.set(guest.id, network.policy([`allow ${network.gateway}:${bound.port}`]));
    expect(await knock(network.gateway)).toMatchObject({ text: "node" });
    expect(await echo(guest, internet.address(1))).toMatchObject(refused);
    server.close();
  });

  test("a deny rule closes what a wider rule opens", async () => {
    const guest = await network.enter(
      network.policy([
        `allow ${internet.network}`,
        `deny ${internet.address(5)}`,
        `deny ${internet.address(6)}:7`,
      ]),
    );
    expect(await echo(guest, internet.address(4))).toMatchObject({ text: "hello" });
    expect(await echo(guest, internet.address(5))).toMatchObject(refused);
    expect(await echo(guest, internet.address(6))).toMatchObject(refused);
    expect(await http(guest, 6, "x")).toMatchObject({ text: expect.stringContaining("200 OK") });
    await logged(guest, {
      address: internet.address(5),
      by: expect.objectContaining({ kind: "rule", index: 1 }),
    });
  });

  test("root with another source address, IPv6 or ICMP gets nowhere", async () => {
    const [guest, neighbour] = [
      await network.enter(network.policy([`allow ${internet.network}/tcp`])),
      await network.enter(),
    ];
    const enter = ["nsenter", `--net=${guest.netnsPath}`] as const;
    const ping = (...args: string[]) =>
      output(...enter, "busybox", "ping", "-c", "1", "-W", "1", ...args).then(
        () => "answered",
        () => "refused",
      );
    expect(await ping(internet.address(1))).toBe("refused");
    await logged(guest, { protocol: "icmp", address: internet.address(1), allowed: false });
    await output(...enter, "ip", "address", "add", `${neighbour.address}/32`, "dev", "eth0");
    expect(await ping("-I", neighbour.address, internet.address(1))).toBe("refused");
    await logged(guest, unchecked("spoofed_source"));
    await output(...enter, "ip", "-6", "address", "add", "fd99::2/64", "dev", "eth0", "nodad");
    await output(...enter, "ip", "-6", "route", "add", "default", "dev", "eth0");
    await output(
      ...enter,
      "ip",
      "-6",
      "neigh",
      "add",
      "fd99::1",
      "lladdr",
      "02:d5:00:00:00:01",
      "dev",
      "eth0",
    );
    expect(await guest.visitor.try({ kind: "tcp", host: "fd99::1", port: 7, send: "x" })).toMatchObject({
      error: expect.stringMatching(/EHOSTUNREACH|EACCES|ENETUNREACH|timeout/),
    });
    await network.gate.set(guest.id, network.policy([`allow ${internet.network}`]));
    await output(...enter, "ip", "address", "del", `${neighbour.address}/32`, "dev", "eth0");
    expect(await ping(internet.address(1))).toBe("answered");
  });

  test("a scan is answered and logged within bounds", async () => {
    const guest = await network.enter(network.policy([]));
    const script = `
      const socket = require("node:dgram").createSocket("udp4");
      socket.on("error", () => {});
      let sent = 0;
      for (let port = 1; port <= 5000; port += 1) socket.send("x", port, ${JSON.stringify(internet.address(1))}, () => (sent += 1) === 5000 && socket.close());`;
    const child = spawn("nsenter", [`--net=${guest.netnsPath}`, process.execPath, "-e", script], {
      stdio: "ignore",
    });
    await once(child, "close");
    await logged(guest, { stage: "connect", protocol: "udp", allowed: false });
    expect((await network.decisions(guest)).length).toBeLessThanOrEqual(512);
    expect(internet.seen("udp").filter(({ text }) => text.endsWith(" x"))).toEqual([]);
  });
});

describe("changes", () => {
  test("tightening ends connections that no longer pass, and no others; loosening needs nothing", async () => {
    await internet.setZone({ "cut.example.test": [1], "stay.example.test": [2] });
    const rules = [`allow ${internet.address(3)}`, `allow ${internet.address(4)}`];
    const names = ["allow cut.example.test", "allow stay.example.test"];
    const guest = await network.enter(network.policy([...rules, ...names]));
    const open = (as: string, server: number, port: number, send: string) =>
      guest.visitor.try({ kind: "open", as, host: internet.address(server), port, send });
    const use = (as: string, send: string) => guest.visitor.try({ kind: "use", as, send });
    const get = (host: string) => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    await query(guest, "cut.example.test");
    await query(guest, "stay.example.test");
    await open("direct cut", 3, 7, "hello");
    await open("direct stays", 4, 7, "hello");
    await open("named cut", 1, 80, get("cut.example.test"));
    await open("named stays", 2, 80, get("stay.example.test"));
    expect(await network.gate.set(guest.id, network.policy([rules[1] ?? "", names[1] ?? ""]))).toEqual({
      cut: 1,
    });
    expect(await use("direct cut", "more")).toMatchObject({
      error: expect.stringMatching(/ECONNRESET|closed/),
    });
    expect(await use("direct stays", "more")).toMatchObject({ text: "more" });
    expect(await use("named cut", get("cut.example.test"))).toMatchObject({
      error: expect.stringMatching(/ECONNRESET|EPIPE|closed/),
    });
    expect(await use("named stays", get("stay.example.test"))).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
    expect(await http(guest, 1, "cut.example.test")).toMatchObject(refused);
    await logged(guest, { stage: "cut", name: "cut.example.test" });
    await network.gate.set(guest.id, network.policy([...rules, ...names]));
    expect(await echo(guest, internet.address(3))).toMatchObject({ text: "hello" });
    expect(await http(guest, 1, "cut.example.test")).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
  });

  test("however often policies change, a probe that tries all the time never gets through", async () => {
    const [a, b] = [
      network.policy([`allow ${internet.address(3)}`]),
      network.policy([`allow ${internet.address(4)}`, `deny ${internet.address(5)}`]),
    ];
    const guest = await network.enter(a);
    const { outcomes, stop } = probe(guest, internet.address(6));
    for (let round = 0; round < 40; round += 1) await network.gate.set(guest.id, round % 2 === 0 ? b : a);
    expect(await echo(guest, internet.address(3))).toMatchObject({ text: "hello" });
    await stop();
    expect(outcomes.length).toBeGreaterThan(5);
    expect(outcomes.filter((outcome) => outcome instanceof Object && "text" in outcome)).toEqual([]);
    expect(internet.seen("tcp").filter(({ to }) => to === internet.address(6))).toEqual([]);
  });

  test("while no daemon runs, allowed addresses are reached and nothing else is; the next one goes on", async () => {
    await internet.setZone({ "away.example.test": [1] });
    const policy = network.policy([`allow ${internet.address(3)}`, "allow away.example.test"]);
    const guest = await network.enter(policy);
    await query(guest, "away.example.test");
    await guest.visitor.try({ kind: "open", as: "away", host: internet.address(3), port: 7, send: "hello" });
    const { outcomes, stop } = probe(guest, internet.address(7));
    const stillOpen = async () =>
      expect(await guest.visitor.try({ kind: "use", as: "away", send: "more" })).toMatchObject({
        text: "more",
      });
    await network.reopen(internet, async () => {
      await stillOpen();
      expect(await query(guest, "away.example.test")).toMatchObject({ error: expect.anything() });
      expect(await http(guest, 1, "away.example.test")).toMatchObject({ error: expect.anything() });
    });
    await stillOpen();
    await network.gate.set(guest.id, policy);
    await network.gate.attach(guest.id, guest);
    await network.gate.reconcile();
    await stillOpen();
    expect(await http(guest, 1, "away.example.test")).toMatchObject(refused);
    await query(guest, "away.example.test");
    expect(await http(guest, 1, "away.example.test")).toMatchObject({
      text: expect.stringContaining("200 OK"),
    });
    await stop();
    expect(outcomes.filter((outcome) => outcome instanceof Object && "text" in outcome)).toEqual([]);
    expect(internet.seen("tcp").filter(({ to }) => to === internet.address(7))).toEqual([]);
  });
});
