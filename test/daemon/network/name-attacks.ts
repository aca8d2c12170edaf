/** Ways round rules about names: by DNS, TLS and HTTP. */
import { expect, test } from "vitest";
import { clientHello, withExtension } from "./client-hello.ts";
import type { EngineNetwork } from "./engine-network.ts";
import { answered, broken, logged, refused, unchecked } from "./outcomes.ts";

/** A fatal TLS alert: access denied. */
const accessDenied = "\x15\x03\x01\x00\x02\x02\x31";
const encryptedHello = 0xfe0d;

export function nameAttacks(of: () => EngineNetwork): void {
  test("queries carry nothing out: neither names that are not allowed, nor other types of those that are", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "tunnel.example.test": [1] });
    const guest = await network.enter(["allow tunnel.example.test"]);
    const secret = "c2VjcmV0".repeat(7);
    for (const name of [
      `${secret}.evil.test`,
      `${secret}.${secret}.tunnel.example.test`,
      "tunnel.example.test.evil.test",
    ])
      expect(await guest.query(name)).toEqual({ error: "ENOTFOUND" });
    for (const type of ["TXT", "MX", "AAAA", "SRV", "NULL"] as const)
      expect(await guest.query("tunnel.example.test", type)).toEqual({ error: "ENODATA" });
    expect(await guest.query("tunnel.example.test")).toEqual({ addresses: [internet.address(1)] });
    const asked = internet.seen("dns").map(({ text }) => text);
    expect(asked.filter((name) => /tunnel|c2VjcmV0/i.test(name))).toEqual(["tunnel.example.test"]);
    const denied = { stage: "query", allowed: false, by: { kind: "default" } } as const;
    await logged(guest, { ...denied, name: `${secret}.evil.test`.toLowerCase() });
    await logged(guest, { ...denied, name: `${secret}.${secret}.tunnel.example.test`.toLowerCase() });
  });

  test("an allowed name that stands for a denied one is refused as that one is, by the rule that denies it", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({
      "denied.example.test": [2],
      "alias.example.test": ["denied.example.test"],
      "far.example.test": ["alias.example.test"],
      "fine.example.test": ["open.example.test"],
      "open.example.test": [1],
    });
    const guest = await network.enter(["allow *.example.test", "deny denied.example.test"]);
    for (const name of ["denied.example.test", "alias.example.test", "far.example.test"]) {
      expect(await guest.query(name)).toEqual({ error: "ENOTFOUND" });
      await logged(guest, {
        stage: "query",
        name,
        allowed: false,
        by: { kind: "rule", index: 1, text: "deny denied.example.test" },
      });
      expect(await guest.https(2, name)).toEqual(refused);
    }
    expect(await guest.query("fine.example.test")).toEqual({ addresses: [internet.address(1)] });
  });

  test("no other name server is reached, by UDP, TCP, TLS or HTTPS", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "a.example.test": [1], "other.example.test": [2] });
    const guest = await network.enter(["allow a.example.test"]);
    await guest.query("a.example.test");
    const { address } = internet.nameServer;
    for (const over of ["udp", "tcp"] as const) {
      const question = { kind: "query", server: address, name: "other.example.test", over } as const;
      expect(await guest.visitor.try(question)).toEqual(refused);
      await logged(guest, { stage: "connect", protocol: over, address, port: 53, allowed: false });
    }
    // DNS over TLS, there and at an allowed address; over HTTPS, by another name at an allowed address.
    for (const host of [address, internet.address(1)]) {
      const attempt = { kind: "tcp", host, port: 853, send: "x" } as const;
      expect(await guest.visitor.try(attempt)).toEqual(refused);
      await logged(guest, { stage: "connect", protocol: "tcp", address: host, port: 853, allowed: false });
    }
    expect(await guest.https(1, "dns.example.test")).toEqual(broken);
    await logged(guest, { stage: "name", name: "dns.example.test", allowed: false });
    expect(internet.seen("dns").map(({ text }) => text)).not.toContain("other.example.test");
    expect(await guest.https(1, "a.example.test")).toMatchObject(answered);
  });

  test("an allowed name that resolves to the node, a neighbour or metadata opens none of them, alone or beside an honest address", async () => {
    const network = of();
    const { internet, gateway } = network;
    const neighbour = await network.neighbour();
    const own = ["169.254.169.254", gateway, neighbour.address];
    const honest = internet.address(1);
    await internet.setZone({ "own.example.test": own, "both.example.test": [...own, honest] });
    const guest = await network.enter(["allow own.example.test:1-65535", "allow both.example.test:1-65535"]);
    expect(await guest.query("own.example.test")).toEqual({ addresses: own });
    expect(await guest.query("both.example.test")).toEqual({ addresses: [...own, honest] });
    for (const address of own) expect(await guest.echo(address)).toEqual(refused);
    expect(await guest.http(1, "both.example.test")).toMatchObject(answered);
    const by = (range: "metadata" | "node" | "sandboxes") => ({ by: { kind: "protected", range } as const });
    await logged(guest, { address: "169.254.169.254", ...by("metadata") });
    await logged(guest, { address: gateway, ...by("node") });
    await logged(guest, { address: neighbour.address, ...by("sandboxes") });
  });

  test("what one sandbox has looked up opens nothing for another with the same rules", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "pin.example.test": [1] });
    const [guest, other] = [
      await network.enter(["allow pin.example.test"]),
      await network.enter(["allow pin.example.test"]),
    ];
    await guest.query("pin.example.test");
    expect(await guest.http(1, "pin.example.test")).toMatchObject(answered);
    expect(await other.http(1, "pin.example.test")).toEqual(refused);
    await logged(other, { stage: "connect", address: internet.address(1), port: 80, allowed: false });
    await other.query("pin.example.test");
    expect(await other.http(1, "pin.example.test")).toMatchObject(answered);
  });

  test("an allowed server name reaches only the address that it resolves to; none, or an encrypted one, reaches nothing", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "sni.example.test": [1], "also.example.test": [2] });
    const guest = await network.enter(["allow sni.example.test", "allow also.example.test"]);
    await guest.query("sni.example.test");
    await guest.query("also.example.test");
    expect(await guest.https(1, "sni.example.test")).toMatchObject(answered);
    expect(await guest.https(3, "sni.example.test")).toEqual(refused);
    await logged(guest, { stage: "connect", address: internet.address(3), port: 443, allowed: false });
    expect(await guest.https(2, "sni.example.test")).toEqual(broken);
    await logged(guest, {
      name: "sni.example.test",
      address: internet.address(2),
      ...unchecked("name_mismatch"),
    });
    expect(await guest.https(1, "evil.test")).toEqual(broken);
    await logged(guest, { stage: "name", name: "evil.test", allowed: false });
    expect(await guest.https(1)).toEqual(broken);
    await logged(guest, unchecked("no_server_name"));

    const outer = Buffer.from("0000010001000020".padEnd(120, "0"), "hex");
    const hello = withExtension(await clientHello("sni.example.test"), encryptedHello, outer);
    const [host, send] = [internet.address(1), hello.toString("latin1")];
    const encrypted = { kind: "tcp", host, port: 443, send, encoding: "latin1" } as const;
    expect(await guest.visitor.try(encrypted)).toEqual({ text: accessDenied });
    await logged(guest, { name: "sni.example.test", ...unchecked("encrypted_server_name") });
    expect(internet.seen("https").filter(({ text }) => /^evil|^\d/.test(text))).toEqual([]);
  });

  test("Host is checked for each request of a connection, and CONNECT is refused, on any port", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "host.example.test": [1] });
    const guest = await network.enter(["allow host.example.test:7,80"]);
    await guest.query("host.example.test");
    const forbidden = { text: expect.stringContaining("403 Forbidden") };
    expect(await guest.http(1, "host.example.test")).toMatchObject(answered);
    expect(await guest.http(1, "evil.test")).toMatchObject(forbidden);
    const host = internet.address(1);
    const echoes = internet.seen("tcp").filter(({ to }) => to === host).length;
    const keep = (send: string) => guest.visitor.try({ kind: "use", as: "http", send });
    const first = "GET /one HTTP/1.1\r\nHost: host.example.test\r\n\r\n";
    const open = { kind: "open", as: "http", host, port: 80, send: first } as const;
    expect(await guest.visitor.try(open)).toMatchObject(answered);
    expect(await keep("GET /two HTTP/1.1\r\nHost: evil.test\r\n\r\n")).toMatchObject(forbidden);
    const send = "CONNECT evil.test:443 HTTP/1.1\r\nHost: host.example.test\r\n\r\n";
    for (const port of [80, 7])
      expect(await guest.visitor.try({ kind: "tcp", host, port, send })).toMatchObject(forbidden);
    await logged(guest, { stage: "name", name: "evil.test", allowed: false });
    await logged(guest, { stage: "name", address: host, port: 7, allowed: false });
    expect(internet.seen("http").filter(({ text }) => text.startsWith("evil"))).toEqual([]);
    expect(internet.seen("tcp").filter(({ to }) => to === host)).toHaveLength(echoes);
  });

  test("what a name's rule does not cover is refused: other ports, QUIC, and what says no name", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "port.example.test": [1], "quic.example.test": [2] });
    const guest = await network.enter(["allow port.example.test", "allow quic.example.test:443/udp"]);
    await guest.query("port.example.test");
    await guest.query("quic.example.test");
    const udp = (server: number) =>
      guest.visitor.try({ kind: "udp", host: internet.address(server), port: 443, send: "hello" });
    expect(await guest.echo(internet.address(1))).toEqual(refused);
    expect(await udp(1)).toEqual(refused);
    await logged(guest, { protocol: "udp", name: "port.example.test", port: 443, allowed: false });
    expect(await udp(2)).toEqual({ text: "hello" });
    expect(await guest.https(2, "quic.example.test")).toEqual(refused);
    const nameless = { kind: "tcp", host: internet.address(1), port: 443, send: "\0\0\0\0 no name" } as const;
    expect(await guest.visitor.try(nameless)).toEqual({ error: "ECONNRESET" });
    await logged(guest, unchecked("no_name"));
  });
}
