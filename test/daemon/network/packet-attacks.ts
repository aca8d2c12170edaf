/**
 * What root with every capability could send over a sandbox's link, frame by frame: real sandboxes have no raw sockets, so this is done
 * from the node, at their end of it. What counts is what leaves the node.
 */
import { expect, test, vi } from "vitest";
import { output } from "../temporary-node.ts";
import type { EngineNetwork } from "./engine-network.ts";
import { arp, ethernet, etherType, ipProtocol, ipv4, ipv6, macsOf, tcp, tcpFlag, udp } from "./frame.ts";
import type { Guest } from "./guest.ts";
import { logged, refused, unchecked } from "./outcomes.ts";

const broadcast = Buffer.alloc(6, 0xff);
const nowhere = Buffer.alloc(6);
const secret = Buffer.from("secret of the sandbox!!!");

function send(guest: Guest, ...frames: readonly string[]) {
  return guest.almighty.try({ kind: "frames", frames });
}

/** As the guest's own link carries it. */
function carry(guest: Guest, type: number, packet: Buffer, to = macsOf(guest.address).host): string {
  return ethernet(macsOf(guest.address).inside, to, type, packet);
}

/** Whether an address answers on its echo port. */
async function reaches(guest: Guest, host: string): Promise<boolean> {
  return (await guest.echo(host)).text === "hello";
}

/** Once the kernel has handled what was sent before: it takes frames of one link in order. */
async function settled(guest: Guest): Promise<void> {
  expect(await guest.query("flush.test")).toEqual({ error: "ENOTFOUND" });
}

export function packetAttacks(of: () => EngineNetwork): void {
  test("nothing that is said by ARP changes where packets of others go, or is answered", async () => {
    const network = of();
    const { internet } = network;
    const policy = [`allow ${internet.address(1)}`];
    const [guest, neighbour] = [await network.enter(policy), await network.enter(policy)];
    const { inside, host } = macsOf(guest.address);
    const claims = [network.gateway, neighbour.address, internet.address(1)].flatMap((address) => [
      arp(2, [inside, address], [host, guest.address]),
      arp(2, [inside, address], [broadcast, address]),
      arp(1, [inside, address], [nowhere, address]),
      arp(1, [inside, guest.address], [nowhere, address]),
    ]);
    const neighbours = () => output("ip", "-4", "neighbour", "show", "dev", neighbour.link);
    const before = await neighbours();
    await send(
      guest,
      ...claims.flatMap((claim) => [broadcast, host].map((to) => carry(guest, etherType.arp, claim, to))),
    );
    expect(await reaches(guest, internet.address(1))).toBe(true);
    expect(await reaches(neighbour, internet.address(1))).toBe(true);
    expect(await neighbours()).toBe(before);
    expect(before).toContain(`${neighbour.address} lladdr 02:d6:`);
    // The node has answered none: its neighbours stay those that it was given.
    const learnt = await output("nsenter", `--net=${guest.netnsPath}`, "ip", "-4", "neighbour", "show");
    expect(learnt.trim().split("\n")).toEqual([expect.stringMatching(/ PERMANENT ?$/)]);
  });

  test("no TCP segment leaves the node without being allowed, whatever its flags, its fragments and its tags", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "raw.example.test": [2] });
    const guest = await network.enter([`allow ${internet.address(1)}:7`, "allow raw.example.test"]);
    await guest.query("raw.example.test");
    const before = internet.received;
    const source = guest.address;
    const flags = [
      tcpFlag.syn,
      tcpFlag.ack | tcpFlag.psh,
      tcpFlag.syn | tcpFlag.ack,
      tcpFlag.rst,
      tcpFlag.fin,
      0,
      63,
    ];
    // Denied; another port of an allowed one; what a name was resolved to, past the proxy and on another port.
    const ends = [
      { destination: internet.address(3), to: 443 },
      { destination: internet.address(1), to: 80 },
      { destination: internet.address(2), to: 443 },
      { destination: internet.address(2), to: 7 },
    ];
    const segments = ends.flatMap(({ destination, to }) =>
      flags.map((flag, index) => {
        const payload = tcp({ source, destination, from: 20_000 + index, to }, flag, secret);
        return ipv4({ source, destination, protocol: ipProtocol.tcp }, payload);
      }),
    );
    const tagged = segments.map((packet) =>
      carry(guest, etherType.vlan, Buffer.concat([Buffer.from([0, 0, 8, 0]), packet])),
    );
    await send(guest, ...segments.map((packet) => carry(guest, etherType.ipv4, packet)), ...tagged);
    await settled(guest);
    expect(internet.received).toBe(before);
    await logged(guest, { stage: "connect", protocol: "tcp", address: internet.address(3), port: 443 });

    const fragments = (to: number, id: number) => {
      const destination = internet.address(1);
      const whole = udp({ source, destination, from: 20_100, to }, secret);
      const common = { source, destination, protocol: ipProtocol.udp, id };
      return [
        // Its ports alone, then the rest.
        carry(guest, etherType.ipv4, ipv4({ ...common, moreFragments: true }, whole.subarray(0, 8))),
        carry(guest, etherType.ipv4, ipv4({ ...common, fragmentAt: 8 }, whole.subarray(8))),
      ];
    };
    await send(guest, ...fragments(443, 10), fragments(7, 11)[1] ?? "");
    await settled(guest);
    expect(internet.received).toBe(before);
    await send(guest, fragments(7, 12)[0] ?? "", fragments(7, 12)[1] ?? "");
    const got = () => internet.seen("udp").filter(({ text }) => text.includes(secret.toString()));
    await vi.waitFor(() => expect(got()).toMatchObject([{ text: `7 ${secret.toString()}` }]));
  });

  test("tunnels, other protocols and IPv6 within IPv4 are refused like what they carry", async () => {
    const network = of();
    const { internet } = network;
    const guest = await network.enter([`allow ${internet.address(1)}/tcp`]);
    const source = guest.address;
    const before = internet.received;
    const denied = internet.address(3);
    const within = ipv4(
      { source, destination: denied, protocol: ipProtocol.udp },
      udp({ source, destination: denied, from: 9, to: 9 }, secret),
    );
    const { ipip, ipv6: sixInFour, gre, esp, sctp, icmp } = ipProtocol;
    const packets = [denied, internet.address(1), network.gateway].flatMap((destination) =>
      [ipip, sixInFour, gre, esp, sctp, icmp].map((protocol) =>
        ipv4({ source, destination, protocol }, within),
      ),
    );
    await send(guest, ...packets.map((packet) => carry(guest, etherType.ipv4, packet)));
    await settled(guest);
    expect(internet.received).toBe(before);
    await logged(guest, { stage: "connect", protocol: "other", address: denied });
    expect(await reaches(guest, internet.address(1))).toBe(true);
  });

  test("packets with a source route are dropped, also where their first stop is allowed", async () => {
    const network = of();
    const { internet, gateway } = network;
    const [allowed, denied] = [internet.address(1), internet.address(3)];
    const guest = await network.enter([`allow ${allowed}`, `allow ${gateway}:7`]);
    const before = internet.received;
    const source = guest.address;
    // Loose and strict; behind one that does nothing.
    const packets = [0x83, 0x89].flatMap((kind) => {
      const options = Buffer.from([1, kind, 7, 4, ...denied.split(".").map(Number)]);
      return [gateway, allowed].flatMap((destination) =>
        [7, 53].map((to) => {
          const payload = udp({ source, destination, from: 20_000, to }, secret);
          return ipv4({ source, destination, protocol: ipProtocol.udp, options }, payload);
        }),
      );
    });
    await send(guest, ...packets.map((packet) => carry(guest, etherType.ipv4, packet)));
    await settled(guest);
    expect(internet.received).toBe(before);
    for (const address of [gateway, allowed])
      await logged(guest, {
        stage: "connect",
        protocol: "udp",
        address,
        port: 7,
        ...unchecked("source_route"),
      });
    expect(await guest.echo(allowed, "udp")).toEqual({ text: "hello" });
  });

  test("packets with a forged source go nowhere, its queries are neither asked nor pinned, and one that cannot be answered ends nothing", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "forged.example.test": [4] });
    const policy = ["allow forged.example.test:7", `allow ${internet.address(5)}`];
    const [guest, neighbour] = [await network.enter(policy), await network.enter(policy)];
    const question = Buffer.concat([
      Buffer.from("00070100000100000000000006666f72676564076578616d706c65047465737400", "hex"),
      Buffer.from([0, 1, 0, 1]),
    ]);
    const query = (source: string, from: number) => {
      const ends = { source, destination: network.gateway, from, to: 53 };
      const packet = ipv4({ ...ends, protocol: ipProtocol.udp }, udp(ends, question));
      return carry(guest, etherType.ipv4, packet);
    };
    const forged = [neighbour.address, network.gateway, internet.nameServer.address, "127.0.0.1"];
    const before = internet.received;
    const spoofed = forged.map((source) => {
      const ends = { source, destination: internet.address(5), from: 20_000, to: 7 };
      return carry(guest, etherType.ipv4, ipv4({ ...ends, protocol: ipProtocol.udp }, udp(ends, secret)));
    });
    await send(guest, ...spoofed, ...forged.map((source) => query(source, 20_000)));
    await settled(guest);
    expect(internet.received).toBe(before);
    expect(internet.seen("dns")).not.toContainEqual(expect.objectContaining({ text: "forged.example.test" }));
    await logged(guest, unchecked("spoofed_source"));
    expect(await reaches(neighbour, internet.address(4))).toBe(false);
    await send(guest, query(guest.address, 0));
    for (const asking of [guest, neighbour])
      expect(await asking.query("forged.example.test")).toEqual({ addresses: [internet.address(4)] });
    expect(await network.interruptions()).toBe(0);
  });

  test("the proxy's own port is no service of sandboxes", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "a.example.test": [1] });
    const guest = await network.enter(["allow a.example.test"]);
    const { gateway, proxyPort, resolverPort } = network.firewall;
    const request = "GET / HTTP/1.1\r\nHost: a.example.test\r\n\r\n";
    for (const port of [proxyPort, resolverPort]) {
      const attempt = { kind: "tcp", host: gateway, port, send: request } as const;
      expect(await guest.visitor.try(attempt)).toEqual(refused);
      await logged(guest, {
        stage: "connect",
        address: gateway,
        port,
        by: { kind: "protected", range: "node" },
      });
    }
  });

  test("IPv6 is refused as a whole, and logged by address; the servers are there", async () => {
    const network = of();
    const { internet } = network;
    const server = internet.ipv6Address(1);
    const others = ["fe80::1", "ff02::1", "2001:db8::1"];
    const guest = await network.enter([`allow [${server}]`, `allow ${internet.network}`]);
    const enter = ["nsenter", `--net=${guest.netnsPath}`] as const;
    const ip = (...args: string[]) => output(...enter, "ip", "-6", ...args);
    await output(...enter, "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6");
    await ip("address", "add", "fd99::2/64", "dev", "eth0", "nodad");
    await ip("route", "add", "default", "dev", "eth0");
    const { inside, host } = macsOf(guest.address);
    await ip(
      "neighbour",
      "add",
      server,
      "lladdr",
      host.toString("hex").replace(/..(?!$)/g, "$&:"),
      "dev",
      "eth0",
    );
    await guest.almighty.try({ kind: "udp", host: server, port: 7, send: "hello", unanswered: true });
    const source = "fd99::2";
    const frames = [server, ...others].flatMap((destination) => {
      const ends = { source, destination, from: 20_000, to: 7 };
      const packets = [
        ipv6(source, destination, ipProtocol.udp, udp(ends, secret)),
        ipv6(source, destination, ipProtocol.tcp, tcp(ends, tcpFlag.syn)),
      ];
      return packets.map((packet) => ethernet(inside, host, etherType.ipv6, packet));
    });
    await send(guest, ...frames);
    await settled(guest);
    expect(
      internet
        .seen("udp")
        .concat(internet.seen("tcp"))
        .filter(({ to }) => to === server),
    ).toEqual([]);
    await logged(guest, { protocol: "udp", address: server, port: 7, ...unchecked("ipv6") });
    const tested = await network.test(guest, { host: server, port: 7, protocol: "tcp" });
    expect(tested).toMatchObject({ allowed: false, addresses: [{ by: { reason: "ipv6" } }] });
    expect(await reaches(guest, internet.address(1))).toBe(true);
    expect(await internet.answersNode(server, "hello")).toBe("hello");
    expect(internet.seen("tcp")).toContainEqual(expect.objectContaining({ to: server }));
  });
}
