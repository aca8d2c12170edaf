import { createHash } from "node:crypto";
import { DSecError } from "../../protocol/errors.ts";
import { runProgram } from "../resources/program.ts";

/** What an instance's rules are made of. All of it follows from its name and its range, so that a new daemon goes on with them. */
export interface Firewall {
  readonly table: string;
  /** What the names of the sandboxes' links begin with. */
  readonly linkPrefix: string;
  /** The node's address towards its sandboxes. */
  readonly gateway: string;
  /** Of the sandboxes' addresses. */
  readonly range: string;
  /** Of packets for the proxy; also the number of the routing table that keeps them on the node. */
  readonly proxyMark: number;
  /** Of packets to addresses that a policy allows, on their way through the rules. */
  readonly directMark: number;
  readonly proxyPort: number;
  /** Where the gateway's port 53 leads. */
  readonly resolverPort: number;
  /** NFLOG group of refusals. */
  readonly logGroup: number;
  /** Connections of a sandbox that the kernel keeps track of at a time. */
  readonly maxFlows: number;
}

/** Of the 262,144 connections that most machines keep track of, few enough that one sandbox is in nobody's way. */
export const defaultMaxFlows = 2048;

/** Prefixes of logged packets. */
export const logPrefix = {
  refused: "refused",
  crowded: "crowded",
  spoofed: "spoofed",
  routed: "routed",
} as const;

/** Names of what changes while sandboxes live. */
export const firewallSet = {
  /** Source address → jump to the chain of its policy's address rules. */
  outgoing: "outgoing_policies",
  /** The same by where a connection really leads, for answers and for what another table has redirected; by the sandbox's address. */
  answers: "answer_policies",
  /** Source, destination, protocol, port: what the resolver answered. */
  pins: "pins",
  /** The same for rules about every port. */
  widePins: "wide_pins",
} as const;

/** The rest of what a {@link Firewall} needs, from names that are unique on the machine. */
export function firewallOf(
  parts: Pick<Firewall, "table" | "linkPrefix" | "gateway" | "range" | "maxFlows">,
): Firewall {
  const digest = createHash("sha256").update(parts.table).digest();
  // Below the ports that the kernel hands out, so that nobody gets ours while no daemon runs.
  const port = 20_000 + (digest.readUInt16BE(0) % 6000) * 2;
  const proxyMark = 0x6400_0000 + (digest.readUIntBE(2, 3) & 0xff_fffe);
  return {
    ...parts,
    proxyMark,
    directMark: proxyMark + 1,
    proxyPort: port,
    resolverPort: port + 1,
    logGroup: 0x4000 + (digest.readUInt16BE(5) & 0x3fff),
  };
}

/** Refusals of a sandbox that are answered in a second; what goes beyond is dropped. Fewer are logged. */
const refusals = { answered: 200, logged: 20 } as const;

/** Questions of a sandbox to the resolver in a second, and in a burst; what goes beyond is dropped, and asked again. */
const questions = { perSecond: 500, burst: 1000 } as const;

/**
 * New connections of a sandbox in a second, and in a burst. One that has ended stays in the kernel's table for up to two minutes and
 * no longer counts as one of `maxFlows`: this bounds those, and questions to the resolver with them.
 */
export function newFlows(maxFlows: number): { perSecond: number; burst: number } {
  return { perSecond: Math.max(8, Math.ceil(maxFlows / 32)), burst: maxFlows };
}

/**
 * The rules that hold for every sandbox of an instance, whichever of its links comes and goes. From inside come answers to
 * connections that the host opened; questions to the resolver; what the sandbox's policy allows by address, or pins to a
 * name; and nothing else. Every packet is judged, in both directions, so that a change ends what was open before.
 *
 * An accept here is not final: the host's own tables judge the packet too. A drop is.
 *
 * Each statement may be repeated on a table that is there: sets and chains of policies are kept.
 */
export function firewallRules(firewall: Firewall): string {
  const { table, linkPrefix, gateway, range, proxyMark, directMark, proxyPort, resolverPort } = firewall;
  const { logGroup, maxFlows } = firewall;
  const links = `"${linkPrefix}*"`;
  const logAs = (prefix: string) => `log group ${logGroup} snaplen 64 prefix "${prefix}"`;
  const log = logAs(logPrefix.refused);
  const tooMany = `update @bursts { ip saddr limit rate over ${refusals.answered}/second burst ${2 * refusals.answered} packets } drop`;
  const logged = `update @logged { ip saddr limit rate ${refusals.logged}/second burst ${3 * refusals.logged} packets }`;
  const begun = newFlows(maxFlows);
  // A limit is part of what a set holds of an address: another one takes another set.
  const [counted, begins] = [`flows_${maxFlows}`, `begun_${maxFlows}`];
  const pinKey = "ipv4_addr . ipv4_addr . inet_proto";
  const chains: Record<string, { hook?: string; rules: string[] }> = {
    rejected: {
      rules: [
        "meta l4proto tcp ct state established reject with tcp reset",
        // The kernel sends no more of these to one address; a reset tells less, but at once.
        `update @explained { ip saddr limit rate 1/second burst 5 packets } reject with icmpx admin-prohibited`,
        "meta l4proto tcp reject with tcp reset",
        "reject with icmpx admin-prohibited",
      ],
    },
    refused: {
      rules: [
        "counter",
        tooMany,
        `meta nfproto != ipv4 limit rate over ${refusals.logged}/second drop`,
        `meta nfproto != ipv4 ${log}`,
        `${logged} ${log}`,
        "goto rejected",
      ],
    },
    crowded: { rules: ["counter", tooMany, `${logged} ${logAs(logPrefix.crowded)}`, "goto rejected"] },
    // Each connection once, when everything else lets it begin: what is refused takes no place in the kernel's table.
    flows: {
      rules: [
        "ct status confirmed return",
        `update @${begins} { ip saddr limit rate over ${begun.perSecond}/second burst ${begun.burst} packets } goto crowded`,
        `add @${counted} { ip saddr ct count over ${maxFlows} } goto crowded`,
      ],
    },
    // Connections to where another table of the node has sent them instead: that must be allowed, too.
    redirected: {
      rules: [
        `ip saddr vmap @${firewallSet.answers}`,
        `ip saddr . ip daddr . meta l4proto . th dport @${firewallSet.pins} accept`,
        `ip saddr . ip daddr . meta l4proto @${firewallSet.widePins} accept`,
        "goto refused",
      ],
    },
    // Passes what is not for the node.
    foreign: { rules: ["fib daddr type { local, broadcast, multicast } goto refused"] },
    // Where a policy's chain for answers leads, for what it denies.
    barred: { rules: ["ct direction original goto refused", "counter drop"] },
    // A chain of its own: a policy's chain that leads here is reached from no other hook.
    proxied: {
      rules: [
        `meta l4proto tcp tproxy ip to ${gateway}:${proxyPort} meta mark set ${proxyMark} accept`,
        // Nobody listens there: no daemon, or no thread of it.
        "goto refused",
      ],
    },
    named: {
      rules: [
        // A name never opens the node: this address it was given since the policy was compiled.
        "jump foreign",
        "meta l4proto tcp goto proxied",
        `meta mark set ${directMark} accept`,
      ],
    },
    questions: {
      rules: [
        `update @askers { ip saddr limit rate over ${questions.perSecond}/second burst ${questions.burst} packets } drop`,
        "accept",
      ],
    },
    source: {
      hook: "type filter hook prerouting priority raw; policy accept;",
      rules: [
        `iifname ${links} fib saddr . iif oif missing counter jump spoofed`,
        ...["lsrr", "ssrr"].map((route) => `iifname ${links} ip option ${route} exists counter jump routed`),
      ],
    },
    spoofed: {
      rules: [`limit rate ${refusals.logged}/second ${logAs(logPrefix.spoofed)}`, "drop"],
    },
    // Source routes: the destination is a stop on the way, and the kernel would put the next one in its place after it was judged.
    routed: { rules: [`${logged} ${logAs(logPrefix.routed)}`, "drop"] },
    outgoing: {
      hook: "type filter hook prerouting priority mangle; policy accept;",
      rules: [
        `iifname != ${links} accept`,
        "meta mark set 0",
        "meta nfproto != ipv4 goto refused",
        "ct state established ct direction reply accept",
        `ip daddr ${gateway} meta l4proto { tcp, udp } th dport 53 goto questions`,
        // Connections alone: a listener is found, too, the proxy's own or one of others that takes every address.
        `meta l4proto tcp ct state established socket transparent 1 meta mark set ${proxyMark} accept`,
        `ip saddr vmap @${firewallSet.outgoing}`,
        `ip saddr . ip daddr . meta l4proto . th dport @${firewallSet.pins} goto named`,
        `ip saddr . ip daddr . meta l4proto @${firewallSet.widePins} goto named`,
        "goto refused",
      ],
    },
    resolver: {
      hook: "type nat hook prerouting priority dstnat; policy accept;",
      rules: [
        `iifname ${links} ip daddr ${gateway} meta l4proto { tcp, udp } th dport 53 dnat ip to ${gateway}:${resolverPort}`,
      ],
    },
    input: {
      hook: "type filter hook input priority filter - 10; policy accept;",
      rules: [
        `iifname != ${links} accept`,
        `meta mark { ${proxyMark}, ${directMark} } jump flows`,
        `meta mark ${directMark} ct status dnat goto redirected`,
        `meta mark { ${proxyMark}, ${directMark} } accept`,
        "ct state established ct direction reply accept",
        `ct status dnat ip daddr ${gateway} meta l4proto { tcp, udp } th dport ${resolverPort} goto asked`,
        "counter drop",
      ],
    },
    forward: {
      hook: "type filter hook forward priority filter - 10; policy accept;",
      rules: [
        `iifname ${links} meta mark ${directMark} goto leaving`,
        `iifname != ${links} oifname != ${links} accept`,
        // What is left are answers to what a sandbox opened.
        "ct state != { established, related } counter drop",
        "ct direction original counter drop",
        `oifname != ${links} counter drop`,
        "ct state related meta l4proto icmp accept",
        `ip daddr vmap @${firewallSet.answers}`,
        `ip daddr . ip saddr . meta l4proto . th sport @${firewallSet.pins} accept`,
        `ip daddr . ip saddr . meta l4proto @${firewallSet.widePins} accept`,
        "counter drop",
      ],
    },
    asked: { rules: ["jump flows", "accept"] },
    leaving: { rules: ["jump flows", "meta mark set 0", "ct status dnat goto redirected", "accept"] },
    way_out: {
      hook: "type nat hook postrouting priority srcnat; policy accept;",
      rules: [`ip saddr ${range} ip daddr != ${range} oifname != ${links} masquerade`],
    },
  };
  const statements = [
    `add table inet ${table}`,
    `add map inet ${table} ${firewallSet.outgoing} { type ipv4_addr : verdict; }`,
    `add map inet ${table} ${firewallSet.answers} { type ipv4_addr : verdict; }`,
    `add set inet ${table} ${firewallSet.pins} { type ${pinKey} . inet_service; }`,
    `add set inet ${table} ${firewallSet.widePins} { type ${pinKey}; }`,
    ...["bursts", "logged", "explained", "askers"].map(
      (name) =>
        `add set inet ${table} ${name} { type ipv4_addr; flags dynamic,timeout; size 65535; timeout 10s; }`,
    ),
    // Longer than it takes to fill up again what a burst has used up.
    `add set inet ${table} ${begins} { type ipv4_addr; flags dynamic,timeout; size 65535; timeout 1m; }`,
    `add set inet ${table} ${counted} { type ipv4_addr; flags dynamic; size 65535; }`,
    ...Object.entries(chains).map(
      ([name, { hook }]) => `add chain inet ${table} ${name}${hook === undefined ? "" : ` { ${hook} }`}`,
    ),
    ...Object.entries(chains).flatMap(([name, { rules }]) => [
      `flush chain inet ${table} ${name}`,
      ...rules.map((rule) => `add rule inet ${table} ${name} ${rule}`),
    ]),
  ];
  return `${statements.join("\n")}\n`;
}

/**
 * Puts the rules in force, in one transaction. Policies that an earlier daemon has put in force stay: no packet meets the node without
 * rules, and none that is allowed is refused.
 *
 * @throws DSecError `config_invalid` where somebody else has a table of that name; `backend_unavailable`
 */
export async function applyFirewall(firewall: Firewall): Promise<void> {
  const rules = firewallRules(firewall);
  const { table } = firewall;
  try {
    if (!(await isThere("map", table, firewallSet.outgoing))) {
      if (await isThere("table", table)) throw foreignTable(table);
      await runNft(rules);
      return;
    }
    try {
      await runNft(rules);
    } catch {
      // The table of another version: what it allowed is refused until the policies are set again.
      await runNft(`delete table inet ${table}\n${rules}`);
    }
  } catch (error) {
    if (error instanceof DSecError && error.code === "config_invalid") throw error;
    throw new DSecError(
      "backend_unavailable",
      "the rules that keep sandboxes off the network cannot be put in force",
      { cause: error },
    );
  }
}

function foreignTable(table: string): DSecError {
  return new DSecError(
    "config_invalid",
    `the nftables table inet ${table} is none of dsec's, and is left as it is: choose another --instance`,
  );
}

/** Removes the table, if it is there. */
export async function removeFirewall(table: string): Promise<void> {
  await runNft(`add table inet ${table}\ndelete table inet ${table}\n`);
}

async function isThere(kind: "map" | "table", table: string, ...name: readonly string[]): Promise<boolean> {
  try {
    await runProgram("nft", ["list", kind, "inet", table, ...name], { discardOutput: true });
    return true;
  } catch (error) {
    if (error instanceof DSecError && error.code === "internal") return false;
    throw error;
  }
}

async function runNft(input: string): Promise<void> {
  await runProgram("nft", ["-f", "-"], { input });
}
