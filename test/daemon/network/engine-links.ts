/** What sandboxes have of the network, seen by their own tools. */
import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import type { EngineNetwork } from "./engine-network.ts";

export function engineLinks(of: () => EngineNetwork): void {
  test("each has one link, one address and one name server, and leaves no link when it ends", async () => {
    const network = of();
    const guests = await Promise.all(Array.from({ length: 3 }, async () => network.enter()));
    expect(new Set(guests.map(({ address }) => address)).size).toBe(3);
    const there = () => guests.filter(({ link }) => existsSync(`/sys/class/net/${link}`));
    expect(there()).toEqual(guests);

    const { gateway, daemon } = network;
    const [{ id, address } = expect.unreachable()] = guests;
    const said = async (script: string) => (await daemon.run(id, ["sh", "-c", script])).stdout;
    expect(await said("ls /sys/class/net | grep -v lo")).toBe("eth0\n");
    expect(await said("ip -4 route | grep default")).toContain(`default via ${gateway} dev eth0`);
    expect(await said("ip -4 addr show eth0")).toContain(`inet ${address}/32`);
    expect(await said("grep -v '^#' /etc/resolv.conf")).toBe(`nameserver ${gateway}\n`);
    expect(await said('grep -w "$(hostname)" /etc/hosts')).toContain(address);

    await Promise.all(guests.map(async (guest) => daemon.stop(guest.id)));
    await expect.poll(there, { timeout: 10_000 }).toEqual([]);
  });
}
