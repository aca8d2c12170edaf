/** What network policies cost: changes, rules for a full node, the proxy against a direct connection, a sandbox's share at its creation. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { GatedNetwork } from "../daemon/network/gated-network.ts";
import type { Guest } from "../daemon/network/guest.ts";
import { sample } from "./support/measure.ts";
import { fixed, Report, times } from "./support/report.ts";

const fullNode = 3200;
const changed = 1000;
const name = "bench.example.test";
const download = 512 * 2 ** 20;
const connections = 500;
/** As the daemon changes them. */
const parallel = 256;
const manyBlocks = Array.from({ length: 10_000 }, (_, n) => `allow 10.${n >> 8}.${n & 255}.0/25`);

const report = new Report("Network policies");
// One guest opens all of them.
await using network = await GatedNetwork.open({ maxFlows: 16_384 });
const { internet } = network;
await internet.setZone({ [name]: [1] });
const byAddress = network.policy([`allow ${internet.network}`]);
const byName = network.policy([`allow ${name}`]);
const guest = await network.enter(byAddress);

const empty = await traffic();
await creation();
await changes();
const full = await traffic();
report.table(
  `A direct connection, beside no other sandbox and beside ${fullNode} with rules of their own`,
  ["", "MB/s", "connections/s", "connect and answer p50 ms"],
  [
    ["no other", ...cells(empty)],
    [`${fullNode} others`, ...cells(full)],
    [
      "ratio",
      times(full.rate / empty.rate),
      times(full.perSecond / empty.perSecond),
      times(full.p50 / empty.p50),
    ],
  ],
);
await proxied();
await report.save("network", "npm run bench -- network");

interface Traffic {
  /** MB/s. */
  readonly rate: number;
  readonly perSecond: number;
  readonly p50: number;
}

function cells({ rate, perSecond, p50 }: Traffic): string[] {
  return [fixed(rate, 0), fixed(perSecond, 0), fixed(p50, 2)];
}

/** HTTP and TLS from a process of its own inside. */
async function traffic(scheme: "http" | "https" = "http"): Promise<Traffic> {
  const script = `
    const client = require("node:${scheme}");
    const options = { host: ${JSON.stringify(internet.address(1))}, servername: ${JSON.stringify(name)}, headers: { host: ${JSON.stringify(name)} }, rejectUnauthorized: false };
    const get = (path) => new Promise((resolve, reject) => client.get({ ...options, path, agent: new client.Agent() }, (answer) => {
      let bytes = 0;
      answer.on("data", (chunk) => (bytes += chunk.length)).on("end", () => resolve(bytes)).on("error", reject);
    }).on("error", reject));
    (async () => {
      await get("/bytes/1000000");
      const began = performance.now();
      const bytes = await get("/bytes/${download}");
      const rate = bytes / 1000 / (performance.now() - began);
      const all = [];
      const start = performance.now();
      for (let done = 0; done < ${connections}; done += 1) {
        const before = performance.now();
        await get("/");
        all.push(performance.now() - before);
      }
      const perSecond = ${connections} / ((performance.now() - start) / 1000);
      all.sort((a, b) => a - b);
      console.log(JSON.stringify({ rate, perSecond, p50: all[${connections / 2}] }));
    })();`;
  return JSON.parse(await inside(guest, script));
}

async function inside({ netnsPath }: Guest, script: string): Promise<string> {
  const child = spawn("nsenter", [`--net=${netnsPath}`, process.execPath, "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
  await once(child, "close");
  return text;
}

/** What the gate adds to the creation of a sandbox; the links come from the pool. */
async function creation(): Promise<void> {
  const rows: string[][] = [];
  const policies = [
    ["nothing allowed", undefined],
    ["a name", byName],
    ["addresses", network.policy(["allow 203.0.113.0/24", "deny 203.0.113.7", "allow 192.0.2.1:443"])],
    ["10,000 blocks of addresses", network.policy(manyBlocks)],
  ] as const;
  let made = 0;
  for (const [title, policy] of policies) {
    const measured = await sample(Math.ceil(fullNode / policies.length), 4, async () => {
      made += 1;
      const id = `other-${made}`;
      if (policy !== undefined) await network.gate.set(id, policy);
      await network.gate.attach(id, { address: `10.99.${made >> 8}.${made & 255}`, link: `other_${made}` });
    });
    rows.push([title, fixed(measured.p50, 2), fixed(measured.p99, 2), fixed(measured.perSecond, 0)]);
  }
  report.table("Putting a new sandbox's policy in force, 4 at a time", ["", "p50 ms", "p99 ms", "/s"], rows);
}

async function changes(): Promise<void> {
  const policies = [0, 1].map((turn) => network.policy([`allow 203.0.113.${turn}`, `allow ${name}`]));
  const rows: string[][] = [];
  const measure = async (title: string, policyOf: (index: number) => (typeof policies)[number]) => {
    const began = performance.now();
    const measured = await sample(changed, parallel, async (index) => {
      await network.gate.set(`other-${index + 1}`, policyOf(index));
    });
    rows.push([title, fixed(performance.now() - began, 0), fixed(measured.p50, 2), fixed(measured.p99, 2)]);
  };
  const [first = byName, second = byName] = policies;
  await measure("one policy for all", () => first);
  await measure("another for all", () => second);
  const own = Array.from({ length: changed }, (_, index) =>
    network.policy([`allow 203.0.${index >> 8}.${index & 255}`]),
  );
  await measure("each its own", (index) => own[index] ?? byName);
  report.table(
    `A change for ${changed} sandboxes, ${parallel} at a time`,
    ["", "all ms", "each p50 ms", "each p99 ms"],
    rows,
  );
}

async function proxied(): Promise<void> {
  const rows: string[][] = [];
  for (const scheme of ["http", "https"] as const) {
    await network.gate.set(guest.id, byAddress);
    const direct = await traffic(scheme);
    await network.gate.set(guest.id, byName);
    await guest.query(name);
    const through = await traffic(scheme);
    rows.push([`${scheme}, direct`, ...cells(direct), ""]);
    rows.push([
      `${scheme}, through the proxy`,
      ...cells(through),
      `${times(through.rate / direct.rate)} throughput, +${fixed(through.p50 - direct.p50, 2)} ms`,
    ]);
  }
  report.table(
    "The proxy against a direct connection; client and server share the machine's cores with it",
    ["", "MB/s", "connections/s", "connect and answer p50 ms", ""],
    rows,
  );
}
