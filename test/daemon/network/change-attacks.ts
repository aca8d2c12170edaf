/** Ways round changes: what was open before, what is tried while they are made, and while no daemon is there to make any. */
import { expect, test, vi } from "vitest";
import type { EngineNetwork } from "./engine-network.ts";
import { answered, logged, refused } from "./outcomes.ts";
import { Trying } from "./trying.ts";

export function changeAttacks(of: () => EngineNetwork): void {
  test("tightening ends connections that no longer pass, and no others; loosening needs nothing", async () => {
    const network = of();
    const { internet } = network;
    await internet.setZone({ "cut.example.test": [1], "stay.example.test": [2] });
    const rules = [`allow ${internet.address(3)}`, `allow ${internet.address(4)}`];
    const names = ["allow cut.example.test", "allow stay.example.test"];
    const guest = await network.enter([...rules, ...names]);
    const open = (as: string, server: number, port: number, send: string) =>
      guest.visitor.try({ kind: "open", as, host: internet.address(server), port, send });
    const use = (as: string, send: string) => guest.visitor.try({ kind: "use", as, send });
    const get = (host: string) => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    await guest.query("cut.example.test");
    await guest.query("stay.example.test");
    await open("direct cut", 3, 7, "hello");
    await open("direct stays", 4, 7, "hello");
    await open("named cut", 1, 80, get("cut.example.test"));
    await open("named stays", 2, 80, get("stay.example.test"));
    expect(await network.push(guest, [rules[1] ?? "", names[1] ?? ""])).toBe(1);
    const gone = { error: expect.stringMatching(/^(?:ECONNRESET|EPIPE|closed)$/) };
    expect(await use("direct cut", "more")).toEqual(gone);
    expect(await use("direct stays", "more")).toEqual({ text: "more" });
    expect(await use("named cut", get("cut.example.test"))).toEqual(gone);
    expect(await use("named stays", get("stay.example.test"))).toMatchObject(answered);
    expect(await guest.http(1, "cut.example.test")).toEqual(refused);
    await logged(guest, { stage: "cut", name: "cut.example.test" });
    await logged(guest, { stage: "connect", address: internet.address(3), port: 7, allowed: false });
    await network.push(guest, [...rules, ...names]);
    expect(await guest.echo(internet.address(3))).toEqual({ text: "hello" });
    expect(await guest.http(1, "cut.example.test")).toMatchObject(answered);
  });

  test("however often policies change, a probe that tries all the time never gets through", async () => {
    const network = of();
    const { internet } = network;
    const [a, b] = [
      [`allow ${internet.address(3)}`],
      [`allow ${internet.address(4)}`, `deny ${internet.address(5)}`],
    ];
    const guest = await network.enter(a);
    {
      await using trying = new Trying(guest.visitor, internet.address(6));
      for (let round = 0; round < 20 || trying.outcomes.length < 6; round += 1)
        for (const rules of [b, a]) await network.push(guest, rules);
      expect(await guest.echo(internet.address(3))).toEqual({ text: "hello" });
      expect(trying.answered).toEqual([]);
    }
    expect(internet.seen("tcp").filter(({ to }) => to === internet.address(6))).toEqual([]);
  });

  test("while no daemon runs, allowed addresses are reached and nothing else is; the next one goes on, and trusts no answer of before", async () => {
    const network = of();
    const { internet } = network;
    const neighbour = await network.neighbour();
    const flips = { name: "flips.example.test", to: [network.gateway, neighbour.address, "169.254.169.254"] };
    await internet.setZone({ "away.example.test": [1], [flips.name]: [1] });
    const names = ["allow away.example.test", `allow ${flips.name}:7,80`];
    const guest = await network.enter([`allow ${internet.address(3)}`, ...names]);
    expect(await guest.query(flips.name)).toEqual({ addresses: [internet.address(1)] });
    await guest.query("away.example.test");
    expect(await guest.http(1, "away.example.test")).toMatchObject(answered);
    // From the node: nobody else can start a program in the sandbox meanwhile.
    const from = guest.almighty;
    const say = (send: string) => from.try({ kind: "use", as: "away", send });
    await from.try({ kind: "open", as: "away", host: internet.address(3), port: 7, send: "hello" });
    const byName = {
      kind: "tcp",
      host: internet.address(1),
      port: 80,
      send: "GET / HTTP/1.1\r\n\r\n",
    } as const;
    {
      await using trying = new Trying(from, internet.address(7));
      await network.reopen(async () => {
        expect(await say("more")).toEqual({ text: "more" });
        expect(await from.try(byName)).toEqual(refused);
        const question = { kind: "query", server: network.gateway, name: "away.example.test" } as const;
        expect(await from.try(question)).toMatchObject({ error: expect.any(String) });
        // Answers are kept for a while, but not beyond a daemon.
        await internet.setZone({ "away.example.test": [1], [flips.name]: flips.to });
      });
      expect(await say("more")).toEqual({ text: "more" });
      expect(await guest.http(1, "away.example.test")).toEqual(refused);
      await guest.query("away.example.test");
      expect(await guest.http(1, "away.example.test")).toMatchObject(answered);
      expect(await guest.query(flips.name)).toEqual({ addresses: flips.to });
      for (const address of flips.to) expect(await guest.echo(address)).toEqual(refused);
      expect(await guest.http(1, flips.name)).toMatchObject({ text: expect.stringContaining("403") });
      expect(trying.outcomes.length).toBeGreaterThan(0);
      expect(trying.answered).toEqual([]);
    }
    expect(internet.seen("tcp").filter(({ to }) => to === internet.address(7))).toEqual([]);
    // Counted a moment later.
    await vi.waitFor(async () => {
      const metrics = await network.daemon.metrics();
      for (const counted of [
        /^dsec_network_connections_total\{verdict="allowed"\} [1-9]/m,
        /^dsec_network_connections_total\{verdict="refused"\} [1-9]/m,
        /^dsec_network_queries_total\{verdict="answered"\} [1-9]/m,
      ])
        expect(metrics).toMatch(counted);
    });
    expect(await network.interruptions()).toBe(0);
  });
}
