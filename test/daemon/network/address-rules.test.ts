/** Address rules as the kernel has them, against what the policy says. */
import { afterAll, beforeAll, expect, test } from "vitest";
import type { CompiledPolicy } from "../../../src/daemon/network/policy/compile.ts";
import { judge } from "../../../src/daemon/network/policy/judge.ts";
import { applyFirewall, firewallOf, removeFirewall } from "../../../src/daemon/network/firewall.ts";
import { KernelRules } from "../../../src/daemon/network/gate/kernel-rules.ts";
import type { PolicyChains } from "../../../src/daemon/network/gate/policy-chain.ts";
import { output, temporaryNode } from "../temporary-node.ts";
import { GatedNetwork } from "./gated-network.ts";
import type { Guest } from "./guest.ts";
import type { Internet } from "./internet.ts";

const cleanup = new AsyncDisposableStack();
let internet: Internet;
let network: GatedNetwork;
let guest: Guest;

beforeAll(async () => {
  network = cleanup.use(await GatedNetwork.open());
  ({ internet } = network);
  guest = await network.enter();
});
afterAll(() => cleanup.disposeAsync());

const servers = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/** Which servers answer on a port. */
async function reached(port: number): Promise<number[]> {
  const send = port === 80 ? "GET / HTTP/1.1\r\nHost: x\r\n\r\n" : "hello";
  const found: number[] = [];
  for (const server of servers) {
    const { text } = await guest.visitor.try({ kind: "tcp", host: internet.address(server), port, send });
    if (text !== undefined) found.push(server);
  }
  return found;
}

function allowed(policy: CompiledPolicy, port: number): number[] {
  const verdict = (server: number) =>
    judge(policy, { address: internet.address(server), port, protocol: "tcp" });
  return servers.filter((server) => verdict(server).allowed);
}

test.each<[string, readonly string[], "allow" | "deny", readonly number[]]>([
  ["one within another", ["allow N.0/24", "allow N.0/29", "allow N.3"], "deny", servers],
  ["one after another", ["allow N.0/30", "allow N.4/30", "allow N.8", "allow N.9"], "deny", servers],
  [
    "that deny within what is allowed",
    ["allow N.0/24", "deny N.4/31", "deny N.5", "deny N.8/29"],
    "deny",
    [1, 2, 3, 6, 7],
  ],
  ["of everything", ["allow 0.0.0.0/0", "deny N.0/30"], "deny", [4, 5, 6, 7, 8, 9]],
  [
    "up to the last address, and the last port",
    ["allow 255.255.255.255", "allow N.2:1-65535", "allow N.3:7,7,6-8,65535/tcp", "allow N.4:8-65535"],
    "deny",
    [2, 3],
  ],
  ["that are denied of all", ["deny N.0/30", "deny N.2/31:7", "deny N.9:7/udp"], "allow", [4, 5, 6, 7, 8, 9]],
])("blocks %s mean to the kernel what they mean to the policy", async (_what, texts, fallback, expected) => {
  const own = internet.network.replace(".0/24", "");
  const policy = network.policy(
    texts.map((text) => text.replace("N", own)),
    fallback,
  );
  await network.gate.set(guest.id, policy);
  expect(await reached(7)).toEqual(expected);
  expect(allowed(policy, 7)).toEqual(expected);
});

test("10,000 rules are in force at once, and replaced at once", async () => {
  const many = Array.from({ length: 9996 }, (_, n) => `allow 10.${100 + (n >> 8)}.${n & 255}.0/25:7/tcp`);
  const [first, second, third] = [internet.address(1), internet.address(2), internet.network];
  const rules = [
    ...many,
    `allow ${first}:7/tcp`,
    `allow ${third}:80`,
    `deny ${second}`,
    "deny 10.255.0.0/16",
  ];
  const policy = network.policy(rules);
  await network.gate.set(guest.id, policy);
  expect(await reached(7)).toEqual([1]);
  expect(await reached(80)).toEqual([1, 3, 4, 5, 6, 7, 8, 9]);
  await network.gate.set(guest.id, network.policy([...many, `allow ${second}:7/tcp`]));
  expect(await reached(7)).toEqual([2]);
  await network.gate.set(guest.id, network.policy([]));
  expect(await reached(7)).toEqual([]);
});

test("what the kernel refuses for one sandbox changes nothing for it, and the others of the same moment all the same", async () => {
  await using node = await temporaryNode();
  const parts = { table: node.instance, linkPrefix: "none_", gateway: "10.0.0.1", range: "10.0.0.0/16" };
  await applyFirewall(firewallOf({ ...parts, maxFlows: 64 }));
  try {
    const kernel = new KernelRules(node.instance);
    const accepting = (address: number): PolicyChains => {
      const field = "destination address";
      const rule = {
        matches: [{ field, in: [{ first: address, last: address }] }],
        verdict: "accept",
      } as const;
      return { outgoing: [rule], answers: [] };
    };
    const wrong: PolicyChains = { outgoing: [{ matches: [], verdict: { goto: "nowhere" } }], answers: [] };
    const nothing = () => ({ add: [], remove: [] });
    await kernel.replace("10.0.0.2", accepting(1), nothing);
    const outcomes = await Promise.allSettled([
      kernel.replace("10.0.0.2", wrong, nothing),
      kernel.replace("10.0.0.3", wrong, nothing),
      ...[4, 5, 6].map(async (last) => kernel.replace(`10.0.0.${last}`, accepting(last % 2), nothing)),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual([
      "rejected",
      "rejected",
      "fulfilled",
      "fulfilled",
      "fulfilled",
    ]);
    const elements = async () => {
      const map = await output("nft", "list", "map", "inet", node.instance, "outgoing_policies");
      return [...map.matchAll(/(10\.0\.0\.\d) : jump (out_\w+)/g)].map(([, source, chain]) => [
        source,
        chain,
      ]);
    };
    const found = await elements();
    expect(found.map(([source]) => source).toSorted()).toEqual([2, 4, 5, 6].map((last) => `10.0.0.${last}`));
    const chains = Object.fromEntries(found) as Record<string, string>;
    expect(chains["10.0.0.5"]).toBe(chains["10.0.0.2"]);
    expect(chains["10.0.0.6"]).toBe(chains["10.0.0.4"]);
    expect(chains["10.0.0.6"]).not.toBe(chains["10.0.0.2"]);
    await kernel.close();
    const next = new KernelRules(node.instance);
    await next.load();
    expect(next.sources().toSorted()).toEqual(found.map(([source]) => source).toSorted());
    await Promise.all(next.sources().map(async (source) => next.replace(source, undefined, nothing)));
    await next.close();
    expect(await elements()).toEqual([]);
  } finally {
    await removeFirewall(node.instance);
  }
});
