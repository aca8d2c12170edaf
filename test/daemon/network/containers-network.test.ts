import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import type { Sandbox } from "../../../src/protocol/sandbox.ts";
import { AddressRange, addressBytes } from "../../../src/daemon/network/address-range.ts";
import { LinkNames } from "../../../src/daemon/network/link-name.ts";
import { containerNode } from "../container-fixture.ts";
import { networkedEngines } from "./networked-engines.ts";

test.each(networkedEngines)(
  "sandboxes of $engine have one link, one address and one name server, and leave no link when they end",
  async ({ spec, options }) => {
    const { node, start } = await containerNode();
    const daemon = await start(options());
    const sandboxes = await Promise.all(
      Array.from({ length: 4 }, async () => daemon.place({ ...spec, hostname: "box" })),
    );
    const linkOf = ({ address = "" }: Sandbox) => {
      const number = addressBytes(address).readUInt16BE(2);
      return `/sys/class/net/${new LinkNames(node.instance).nameOf(number)}`;
    };
    expect(new Set(sandboxes.map(({ address }) => address)).size).toBe(4);
    expect(sandboxes.map(linkOf).filter((link) => !existsSync(link))).toEqual([]);

    const [{ id, address = "" } = expect.unreachable()] = sandboxes;
    const said = async (script: string) => (await daemon.run(id, ["sh", "-c", script])).stdout;
    const { gateway } = AddressRange.parse(node.networkRange);
    expect(await said("ls /sys/class/net | grep -v lo")).toBe("eth0\n");
    expect(await said("ip -4 route | grep default")).toContain(`default via ${gateway} dev eth0`);
    expect(await said("ip -4 addr show eth0")).toContain(`inet ${address}/32`);
    expect(await said("grep -v '^#' /etc/resolv.conf")).toBe(`nameserver ${gateway}\n`);
    expect(await said("grep -w box /etc/hosts")).toContain(address);

    await Promise.all(sandboxes.map(async (sandbox) => daemon.stop(sandbox.id)));
    await expect.poll(() => sandboxes.map(linkOf).filter(existsSync), { timeout: 10_000 }).toEqual([]);
  },
);
