/** Ways round rules about addresses, with what root in a sandbox has: sockets, and no raw ones. */
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { expect, test } from "vitest";
import type { NetworkDecision } from "../../../src/protocol/network-decision.ts";
import { output } from "../temporary-node.ts";
import type { EngineNetwork } from "./engine-network.ts";
import { answered, logged, refused } from "./outcomes.ts";
import type { Outcome } from "./visitor.ts";

const metadata = "169.254.169.254";

/** Something that serves on every address of the node. */
async function serveOnNode(): Promise<{ server: Server; port: number; served: string[] }> {
  const served: string[] = [];
  const server = createServer((socket) => {
    served.push(socket.remoteAddress ?? "");
    socket.on("error", () => undefined).end("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnode");
  });
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("not a port");
  return { server, port: bound.port, served };
}

export function addressAttacks(of: () => EngineNetwork): void {
  test("an address is refused at once, distinctly, and logged with the rule; an allowed one is reached", async () => {
    const network = of();
    const { internet } = network;
    const [allowed, denied, other] = [internet.address(3), internet.address(4), internet.address(5)];
    const guest = await network.enter([`allow ${internet.network}`, `deny ${denied}`, `deny ${other}:7`]);
    expect(await guest.echo(denied)).toEqual({ error: "EHOSTUNREACH" });
    expect(await guest.echo(denied, "udp")).toEqual(refused);
    // Another spelling of the same address, which other sockets have.
    expect(await guest.echo(`::ffff:${denied}`)).toEqual(refused);
    expect(await guest.echo(other)).toEqual(refused);
    for (const protocol of ["tcp", "udp"] as const)
      await logged(guest, {
        stage: "connect",
        allowed: false,
        protocol,
        address: denied,
        port: 7,
        by: expect.objectContaining({ kind: "rule", index: 1 }) as NetworkDecision["by"],
      });
    for (const protocol of ["tcp", "udp"] as const)
      expect(await guest.echo(allowed, protocol)).toEqual({ text: "hello" });
    expect(await guest.echo(`::ffff:${allowed}`)).toEqual({ text: "hello" });
    expect(await guest.http(5, "x")).toMatchObject(answered);
    expect(internet.seen("tcp").filter(({ to }) => to === denied || to === other)).toEqual([]);
  });

  test("an open policy opens neither the node, nor neighbours, nor metadata, nor multicast; an explicit rule does", async () => {
    const network = of();
    const { internet, gateway } = network;
    const { server, port, served } = await serveOnNode();
    try {
      const neighbour = await network.neighbour();
      await neighbour.visitor.listen(port);
      const guest = await network.enter([], "allow");
      const knock = (host: string) => guest.visitor.try({ kind: "tcp", host, port, send: "x" });
      expect(await guest.echo(internet.address(1))).toEqual({ text: "hello" });
      const node = [gateway, internet.network.replace("0/24", "254")];
      for (const host of [...node, neighbour.address, metadata]) expect(await knock(host)).toEqual(refused);
      const multicast = { kind: "udp", host: "224.0.0.251", port, send: "x", unanswered: true } as const;
      expect(await guest.visitor.try(multicast)).toEqual({});
      const by = (range: Extract<NetworkDecision["by"], { kind: "protected" }>["range"]) =>
        ({ allowed: false, by: { kind: "protected", range } }) as const;
      for (const host of node) await logged(guest, { address: host, port, ...by("node") });
      await logged(guest, { address: neighbour.address, port, ...by("sandboxes") });
      await logged(guest, { address: metadata, port, ...by("metadata") });
      await logged(guest, { address: "224.0.0.251", port, ...by("multicast") });
      expect(served).toEqual([]);

      const scan = (host: string) =>
        guest.visitor.try({ kind: "scan", host, first: port - 200, last: port + 200 });
      for (const host of [gateway, neighbour.address]) expect(await scan(host)).toEqual({ error: "closed" });
      expect(served).toEqual([]);
      await network.push(guest, [`allow ${gateway}:${port}`, `allow ${neighbour.address}:${port}`]);
      expect(await knock(gateway)).toMatchObject(answered);
      expect(await scan(gateway)).toEqual({ text: `${port}\n` });
      expect(await knock(neighbour.address)).toEqual({ text: "x" });
      expect(await guest.echo(internet.address(1))).toEqual(refused);
    } finally {
      server.close();
    }
  });

  test("an allowed name opens no address of the node, also one that it was given since", async () => {
    const network = of();
    const address = `203.0.113.${randomInt(1, 255)}`;
    const { server, port, served } = await serveOnNode();
    await network.internet.setZone({ "late.example.test": [address] });
    const guest = await network.enter([`allow late.example.test:${port}`]);
    const send = "GET / HTTP/1.1\r\nHost: late.example.test\r\n\r\n";
    await output("ip", "address", "add", `${address}/32`, "dev", "lo");
    try {
      await guest.query("late.example.test");
      expect(await guest.visitor.try({ kind: "tcp", host: address, port, send })).toEqual(refused);
      await logged(guest, { stage: "connect", address, port, name: "late.example.test", allowed: false });
      expect(served).toEqual([]);
    } finally {
      await output("ip", "address", "del", `${address}/32`, "dev", "lo");
      server.close();
    }
  });

  test("there are no raw sockets, no other source address and no way to change the link", async () => {
    const network = of();
    const { internet, gateway, daemon } = network;
    const neighbour = await network.neighbour();
    const guest = await network.enter([`allow ${internet.network}`]);
    const before = internet.received;
    const impossible = { error: expect.stringMatching(/^(?:EPERM|EACCES|EINVAL|EAFNOSUPPORT|ENETUNREACH)$/) };
    const { visitor } = guest;
    for (const protocol of [1, 6, 17, 255])
      expect(await visitor.try({ kind: "raw", host: internet.address(1), protocol })).toEqual(impossible);
    expect(await visitor.try({ kind: "frames", frames: ["00"] })).toEqual(impossible);
    for (const from of [neighbour.address, gateway, "127.0.0.1"])
      for (const kind of ["tcp", "udp"] as const) {
        const attempt = { kind, host: internet.address(1), port: 7, send: "hello", from } as const;
        expect(await visitor.try(attempt)).toEqual(impossible);
      }
    expect(internet.received).toBe(before);
    const tools = [
      `ip addr add ${neighbour.address}/32 dev eth0`,
      "ip -6 addr add fd99::2/64 dev eth0",
      `ip route add ${internet.network} dev eth0`,
      "ip link set eth0 address 02:00:00:00:00:01",
      "ip link set eth0 arp on",
      `arp -i eth0 -s ${internet.address(1)} 02:00:00:00:00:01`,
      "ip link add x type dummy",
    ];
    for (const tool of tools) {
      const { status } = await daemon.run(guest.id, ["sh", "-c", tool]);
      expect([tool, status]).toEqual([tool, expect.objectContaining({ type: "exit" })]);
      expect([tool, status]).not.toEqual([tool, expect.objectContaining({ exitCode: 0 })]);
    }
    expect(await guest.echo(internet.address(1))).toEqual({ text: "hello" });
  });

  test("pings are refused and logged; an allowed one is answered", async () => {
    const network = of();
    const { internet } = network;
    const guest = await network.enter([`allow ${internet.network}/tcp`, `allow ${internet.address(2)}/icmp`]);
    const ping = (host: string): Promise<Outcome> => guest.visitor.try({ kind: "ping", host });
    expect(await ping(internet.address(1))).toMatchObject({ error: expect.any(String) });
    await logged(guest, { stage: "connect", protocol: "icmp", address: internet.address(1), allowed: false });
    expect(await ping(internet.address(2))).toEqual({ text: expect.stringMatching(/hello$/) });
  });

  test("IPv6 leads nowhere, though its servers are there", async () => {
    const network = of();
    const { internet } = network;
    const host = internet.ipv6Address(1);
    const guest = await network.enter([`allow [${host}]`], "allow");
    for (const kind of ["tcp", "udp"] as const)
      expect(await guest.echo(host, kind)).toEqual({
        error: expect.stringMatching(/^(?:ENETUNREACH|EADDRNOTAVAIL|EAFNOSUPPORT)$/),
      });
    expect(await internet.answersNode(host, "hello")).toBe("hello");
    expect(await guest.echo(internet.address(1))).toEqual({ text: "hello" });
  });

  test("a scan is answered and logged within bounds", async () => {
    const network = of();
    const { internet } = network;
    const guest = await network.enter();
    const host = internet.address(1);
    const before = internet.received;
    for (let first = 1; first < 1000; first += 512)
      expect(await guest.visitor.try({ kind: "scan", host, first, last: first + 511 })).toEqual({
        error: "closed",
      });
    await logged(guest, { stage: "connect", protocol: "tcp", address: host, allowed: false });
    expect((await guest.decisions()).length).toBeLessThanOrEqual(512);
    expect(internet.received).toBe(before);
  });
}
