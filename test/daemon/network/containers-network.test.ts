import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Sandbox } from "../../../src/protocol/sandbox.ts";
import { parseRule } from "../../../src/protocol/network-rule-text.ts";
import { containerNode } from "../container-fixture.ts";
import type { TestDaemon } from "../daemon-fixture.ts";
import { AddressRange, addressBytes } from "../../../src/daemon/network/address-range.ts";
import { LinkNames } from "../../../src/daemon/network/link-name.ts";
import { Internet } from "./internet.ts";
import { networkedEngines } from "./networked-engines.ts";

let internet: Internet;

beforeAll(async () => {
  internet = await Internet.start();
  await internet.setZone({ "a.example.test": [1], "b.example.test": [2] });
});
afterAll(() => internet[Symbol.asyncDispose]());

/** What one of the internet's servers answers to a sandbox that asks for a host by its name server first. */
async function get(of: TestDaemon, id: string, server: number, host = internet.address(server)) {
  // Not by name at once: wget of a static busybox has no C library to look it up with.
  const lines = ["GET / HTTP/1.1", `Host: ${host}`, "Connection: close", "", ""].join("\\r\\n");
  // The server ends the connection; nc must not do so before it has answered.
  const fetch = `{ printf '${lines}'; sleep 1; } | nc -w 5 ${internet.address(server)} 80`;
  return of.run(id, ["sh", "-c", `nslookup ${host} > /dev/null; ${fetch}`]);
}

function reached(server: number, host = internet.address(server)): object {
  return { stdout: expect.stringContaining(`"server":"${internet.address(server)}","host":"${host}"`) };
}

const nothing = { stdout: "" };

describe.each(networkedEngines)("containers of $engine", ({ spec, options }) => {
  async function nodeOf() {
    const node = await containerNode();
    const { address, port } = internet.nameServer;
    const start = () => node.start({ ...options(), nameServers: [`${address}:${port}`] });
    return { node: node.node, start };
  }

  test("reach what their rules name, by name and address, from their first command to a restart of their daemon", async () => {
    const { start } = await nodeOf();
    const daemon = await start();
    const networkRules = { "a.example.test": true, "b.example.test": false, [internet.address(3)]: true };
    const { id } = await daemon.place({ ...spec, networkRules });
    expect(await get(daemon, id, 1, "a.example.test")).toMatchObject(reached(1, "a.example.test"));
    expect(await get(daemon, id, 2, "b.example.test")).toMatchObject(nothing);
    expect(await get(daemon, id, 3)).toMatchObject(reached(3));
    expect(await get(daemon, id, 4)).toMatchObject(nothing);
    await daemon.leave();

    const next = await start();
    await next.running.recovered;
    expect(await get(next, id, 1, "a.example.test")).toMatchObject(reached(1, "a.example.test"));
    expect(await get(next, id, 3)).toMatchObject(reached(3));
    expect(await get(next, id, 4)).toMatchObject(nothing);
    const denied = await next.place(spec);
    expect(await get(next, denied.id, 1, "a.example.test")).toMatchObject(nothing);
    expect(await get(next, denied.id, 3)).toMatchObject(nothing);
    const counted = (metric: string) => expect.stringMatching(new RegExp(`^${metric} [1-9]`, "m"));
    const metrics = await next.metrics();
    expect(metrics).toEqual(counted('dsec_network_connections_total{verdict="allowed"}'));
    expect(metrics).toEqual(counted('dsec_network_connections_total{verdict="refused"}'));
    expect(metrics).toEqual(counted('dsec_network_queries_total{verdict="answered"}'));
    expect(metrics).toContain("\ndsec_network_interruptions_total 0\n");
  });

  test("have one link, one address and one name server, and what they may reach changes while they run", async () => {
    const { node, start } = await nodeOf();
    const daemon = await start();
    const { id, address } = await daemon.place({ ...spec, hostname: "box" });
    const said = async (script: string) => (await daemon.run(id, ["sh", "-c", script])).stdout;
    const gateway = AddressRange.parse(node.networkRange).gateway;
    expect(await said("ls /sys/class/net | grep -v lo")).toBe("eth0\n");
    expect(await said("ip -4 route | grep default")).toContain(`default via ${gateway} dev eth0`);
    expect(await said("ip -4 addr show eth0")).toContain(`inet ${address}/32`);
    expect(await said("grep -v '^#' /etc/resolv.conf")).toBe(`nameserver ${gateway}\n`);
    expect(await said("grep -w box /etc/hosts")).toContain(address);
    expect(await get(daemon, id, 3)).toMatchObject(nothing);
    const push = async (...allowed: string[]) => {
      const given = { policy: { rules: allowed.map((text) => parseRule("allow", text)) } };
      await daemon.http.json("applyPolicy", { body: { given, to: { refs: [id] } } });
    };
    await push(internet.address(3));
    expect(await get(daemon, id, 3)).toMatchObject(reached(3));
    await push();
    expect(await get(daemon, id, 3)).toMatchObject(nothing);
  });

  test("leave no link when they end", async () => {
    const { node, start } = await nodeOf();
    const daemon = await start();
    const sandboxes = await Promise.all(Array.from({ length: 4 }, async () => daemon.place(spec)));
    const linkOf = ({ address = "" }: Sandbox) => {
      const number = addressBytes(address).readUInt16BE(2);
      return `/sys/class/net/${new LinkNames(node.instance).nameOf(number)}`;
    };
    expect(new Set(sandboxes.map(({ address }) => address)).size).toBe(4);
    expect(sandboxes.map(linkOf).filter((link) => !existsSync(link))).toEqual([]);
    await Promise.all(sandboxes.map(async ({ id }) => daemon.stop(id)));
    await expect.poll(() => sandboxes.map(linkOf).filter(existsSync), { timeout: 10_000 }).toEqual([]);
  });
});
