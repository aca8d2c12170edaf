/** One sandbox does what it can to fill the kernel's table of connections, which all of the node shares. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { newFlows } from "../../../src/daemon/network/firewall.ts";
import { ethernet, etherType, ipProtocol, ipv4, macsOf, tcp, tcpFlag, udp } from "./frame.ts";
import { GatedNetwork } from "./gated-network.ts";
import type { Guest } from "./guest.ts";
import type { Internet } from "./internet.ts";
import { logged, refused } from "./outcomes.ts";

const maxFlows = 128;
const { perSecond } = newFlows(maxFlows);
const limited = { allowed: false, by: { kind: "limit", limit: "flows" } } as const;
/** Nobody of the small internet has it. */
const silent = 77;

let internet: Internet;
let network: GatedNetwork;
const cleanup = new AsyncDisposableStack();

beforeAll(async () => {
  network = cleanup.use(await GatedNetwork.open({ maxFlows }));
  ({ internet } = network);
});
afterAll(() => cleanup.disposeAsync());

/** What the kernel keeps of a guest's connections. */
function tracked({ address }: Guest): string[] {
  const lines = readFileSync("/proc/net/nf_conntrack", "latin1").split("\n");
  return lines.filter((line) => line.includes(` src=${address} `));
}

/** Those that have not ended. */
function open(guest: Guest): string[] {
  return tracked(guest).filter((line) => !/ (?:TIME_WAIT|CLOSE) /.test(line));
}

/** Runs a program inside; what it prints first is awaited. */
async function runInside(
  { netnsPath }: Guest,
  script: string,
): Promise<{ child: ChildProcess; said: string }> {
  const child = spawn("nsenter", [`--net=${netnsPath}`, process.execPath, "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanup.defer(() => void child.kill("SIGKILL"));
  const [first]: unknown[] = await once(child.stdout, "data");
  return { child, said: String(first) };
}

/** The node and its other sandboxes go on. */
async function othersGoOn(neighbour: Guest): Promise<void> {
  expect(await neighbour.echo(internet.address(2))).toMatchObject({ text: "hello" });
  expect(await internet.answersNode(internet.address(2), "hello")).toBe("hello");
}

/** From outside, once what was open has ended: as quickly as new connections may begin again. */
async function recovers(guest: Guest): Promise<void> {
  await vi.waitFor(
    async () => expect(await guest.echo(internet.address(1))).toMatchObject({ text: "hello" }),
    {
      timeout: 15_000,
      interval: 200,
    },
  );
}

test("connections that are kept open are bounded, however long more are tried, and others go on; it recovers when they end", async () => {
  const policy = network.policy([`allow ${internet.network}`]);
  const [guest, neighbour] = [await network.enter(policy), await network.enter(policy)];
  // Longer than a burst: what may begin in a second is then more than what is left.
  const { child, said } = await runInside(
    guest,
    `const { connect } = require("node:net");
     const until = Date.now() + 2500;
     let kept = 0, refused = 0;
     const one = () => {
       if (Date.now() > until) return;
       const socket = connect(7, ${JSON.stringify(internet.address(1))}, () => { kept += 1; one(); });
       socket.on("error", () => { refused += 1; setTimeout(one, 2); });
     };
     for (let at = 0; at < 20; at += 1) one();
     setTimeout(() => console.log(JSON.stringify({ kept, refused })), 3000);
     setInterval(() => {}, 1000);`,
  );
  const tries = JSON.parse(said) as { kept: number; refused: number };
  expect(tries.kept).toBe(maxFlows);
  expect(tries.refused).toBeGreaterThan(2 * perSecond);
  expect(open(guest)).toHaveLength(maxFlows);
  await othersGoOn(neighbour);
  await logged(guest, {
    stage: "connect",
    protocol: "tcp",
    address: internet.address(1),
    port: 7,
    ...limited,
  });
  expect(await guest.echo(internet.address(1))).toEqual(refused);
  child.kill("SIGKILL");
  await recovers(guest);
});

test("connections that end at once, and stay in the kernel's table all the same, are bounded by how quickly they begin", async () => {
  const policy = network.policy([`allow ${internet.network}`]);
  const [guest, neighbour] = [await network.enter(policy), await network.enter(policy)];
  const began = performance.now();
  await runInside(
    guest,
    `const { connect } = require("node:net");
     let left = 1000;
     const one = () => {
       if ((left -= 1) < 0) return;
       const socket = connect(7, ${JSON.stringify(internet.address(1))}, () => socket.end("x").resume());
       socket.on("error", () => undefined).on("close", one);
     };
     for (let at = 0; at < 8; at += 1) one();
     process.on("exit", () => require("node:fs").writeSync(1, "done"));`,
  );
  const seconds = (performance.now() - began) / 1000;
  expect(tracked(guest).length).toBeGreaterThanOrEqual(maxFlows / 2);
  expect(tracked(guest).length).toBeLessThanOrEqual(maxFlows + Math.ceil(seconds * perSecond));
  await othersGoOn(neighbour);
  await logged(guest, { stage: "connect", protocol: "tcp", ...limited });
  await recovers(guest);
});

test.each(["half-open connections", "datagrams to any port", "datagrams from any port"])(
  "%s are bounded",
  async (kind) => {
    const policy = network.policy([`allow ${internet.network}`]);
    const [guest, neighbour] = [await network.enter(policy), await network.enter(policy)];
    const { inside, host } = macsOf(guest.address);
    const frames = Array.from({ length: 4000 }, (_, index) => {
      const ends = { source: guest.address, destination: internet.address(silent), from: 2000, to: 7 };
      const [from, to] = kind === "datagrams to any port" ? [2000, 2000 + index] : [2000 + index, 7];
      const [protocol, payload] = kind.startsWith("half")
        ? [ipProtocol.tcp, tcp({ ...ends, from, to }, tcpFlag.syn)]
        : [ipProtocol.udp, udp({ ...ends, from, to }, Buffer.from("x"))];
      const packet = ipv4({ source: ends.source, destination: ends.destination, protocol }, payload);
      return ethernet(inside, host, etherType.ipv4, packet);
    });
    const began = performance.now();
    await guest.visitor.try({ kind: "frames", frames });
    await logged(guest, { stage: "connect", address: internet.address(silent), ...limited });
    const seconds = (performance.now() - began) / 1000;
    expect(tracked(guest).length).toBeGreaterThanOrEqual(maxFlows / 2);
    expect(tracked(guest).length).toBeLessThanOrEqual(
      Math.min(maxFlows, maxFlows + Math.ceil(seconds * perSecond)),
    );
    await othersGoOn(neighbour);
  },
);

test("what a sandbox leaves open ends with it, and is not held against whoever has its address next", async () => {
  const policy = network.policy([`allow ${internet.network}`]);
  const [guest, neighbour] = [await network.enter(policy), await network.enter(policy)];
  for (const one of [guest, neighbour]) {
    const host = internet.address(1);
    await one.visitor.try({ kind: "open", as: "kept", host, port: 7, send: "hello" });
    await one.visitor.try({ kind: "udp", host, port: 7, send: "hello" });
  }
  expect(open(guest)).toHaveLength(2);
  await network.gate.detach(guest.id);
  expect(tracked(guest)).toEqual([]);
  expect(open(neighbour)).toHaveLength(2);
  expect(await neighbour.visitor.try({ kind: "use", as: "kept", send: "more" })).toMatchObject({
    text: "more",
  });
});

test("what is refused takes no place: after a scan, what is allowed is reached", async () => {
  const guest = await network.enter(network.policy([`allow ${internet.address(1)}`]));
  const { inside, host } = macsOf(guest.address);
  const frames = Array.from({ length: 4000 }, (_, index) => {
    const ends = { source: guest.address, destination: internet.address(2), from: 2000, to: 1 + index };
    const packet = ipv4({ ...ends, protocol: ipProtocol.tcp }, tcp(ends, tcpFlag.syn));
    return ethernet(inside, host, etherType.ipv4, packet);
  });
  await guest.visitor.try({ kind: "frames", frames });
  expect(await guest.echo(internet.address(1))).toMatchObject({ text: "hello" });
  expect(tracked(guest).filter((line) => line.includes(` dst=${internet.address(2)} `))).toEqual([]);
});

test("what the node begins for a sandbox is bounded, too: questions, and connections to a server that ends each", async () => {
  const name = "once.example.test";
  await internet.setZone({ [name]: [1] });
  const server = spawn(
    "nsenter",
    [
      `--net=${internet.netnsPath}`,
      process.execPath,
      "-e",
      `require("node:http").createServer((_, answer) => answer.writeHead(200, { connection: "close" }).end("once\\n"))
         .listen(8080, ${JSON.stringify(internet.address(1))}, () => console.log("up"));`,
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  cleanup.defer(() => void server.kill("SIGKILL"));
  await once(server.stdout, "data");
  const guest = await network.enter(network.policy([`allow ${name}:8080`, "allow *.many.example.test"]));
  await guest.query(name);
  const { said } = await runInside(
    guest,
    `const { Agent, get } = require("node:http");
     const agent = new Agent({ keepAlive: true, maxSockets: 1 });
     const options = { host: ${JSON.stringify(internet.address(1))}, port: 8080, agent, headers: { host: "${name}:8080" } };
     let answered = 0;
     const one = () => get(options, (answer) => {
       answer.resume();
       if (answer.statusCode !== 200 || answered === ${2 * maxFlows})
         return console.log(JSON.stringify({ answered, status: answer.statusCode, ports: [...ports].length }));
       answered += 1;
       answer.on("end", one);
     }).on("socket", (socket) => socket.connecting && socket.once("connect", () => ports.add(socket.localPort)));
     const ports = new Set();
     one();`,
  );
  const sent = JSON.parse(said) as { answered: number; status: number; ports: number };
  expect(sent).toMatchObject({ status: 429, ports: 1 });
  expect(sent.answered).toBeGreaterThanOrEqual(maxFlows / 2);
  await logged(guest, { stage: "name", name, ...limited });
  const errors = new Set<string | undefined>();
  for (let asked = 0; asked < maxFlows && !errors.has("ESERVFAIL"); asked += 1)
    errors.add((await guest.query(`n${asked}.many.example.test`)).error);
  expect(errors).toContain("ESERVFAIL");
  await logged(guest, { stage: "query", ...limited });
});
