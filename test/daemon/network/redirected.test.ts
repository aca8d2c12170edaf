/** Another table of the node sends what is allowed to somewhere else, as those of container engines and load balancers do. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { output } from "../temporary-node.ts";
import { GatedNetwork } from "./gated-network.ts";
import type { Guest } from "./guest.ts";
import type { Internet } from "./internet.ts";
import { answered, logged, refused } from "./outcomes.ts";

const cleanup = new AsyncDisposableStack();
const table = `other-${randomBytes(3).toString("hex")}`;
const metadata = "169.254.169.254";

let internet: Internet;
let network: GatedNetwork;
let neighbour: Guest;
/** Port of a service on every address of the node, and of one of the neighbour's. */
let port: number;
const served: string[] = [];

beforeAll(async () => {
  network = cleanup.use(await GatedNetwork.open());
  ({ internet } = network);
  const server = createServer((socket) => {
    served.push(socket.remoteAddress ?? "");
    socket.on("error", () => undefined).end("node");
  });
  cleanup.defer(() => void server.close());
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("not a port");
  ({ port } = bound);
  neighbour = await network.enter(network.policy([], "allow"));
  const script = `
    require("node:dgram").createSocket("udp4").on("message", () => console.log("got")).bind(${port}, () =>
      require("node:net").createServer((socket) => { console.log("got"); socket.end("neighbour"); }).listen(${port}, () => console.log("up")));`;
  const child = spawn("nsenter", [`--net=${neighbour.netnsPath}`, process.execPath, "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanup.defer(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  child.stdout.on("data", () => served.push("neighbour"));
  cleanup.defer(() => output("nft", "delete", "table", "ip", table).then(() => undefined));
});
afterAll(() => cleanup.disposeAsync());
beforeEach(() => void served.splice(0));

/** Has the table send what a guest sends to an address elsewhere. */
async function redirect({ link }: Guest, from: string, to: string): Promise<void> {
  const own = `ip ${table}`;
  const rules = [
    `add table ${own}`,
    `delete table ${own}`,
    `add table ${own}`,
    `add chain ${own} there { type nat hook prerouting priority dstnat; }`,
    `add rule ${own} there iifname ${link} ip daddr ${from} meta l4proto { tcp, udp } ${to}`,
  ];
  const child = spawn("nft", ["-f", "-"], { stdio: ["pipe", "inherit", "inherit"] });
  child.stdin.end(rules.join("\n"));
  expect(await once(child, "close")).toEqual([0, null]);
}

function knock(guest: Guest, host: string, kind: "tcp" | "udp" = "tcp", at = port) {
  return guest.visitor.try({ kind, host, port: at, send: "hello" });
}

test.each(["open", "an allowed network"])(
  "what is allowed by %s leads neither to the node, nor to a neighbour, nor to metadata, whatever another table does",
  async (kind) => {
    const policy =
      kind === "open" ? network.policy([], "allow") : network.policy([`allow ${internet.network}`]);
    const guest = await network.enter(policy);
    const host = internet.address(1);
    const own = internet.network.replace("0/24", "254");
    for (const target of [network.gateway, own, neighbour.address, metadata]) {
      await redirect(guest, host, `dnat to ${target}`);
      expect(await knock(guest, host)).toEqual(refused);
    }
    await redirect(guest, host, `dnat to ${neighbour.address}`);
    expect((await knock(guest, host, "udp")).error).toBeDefined();
    await redirect(guest, host, "redirect");
    const silence = { kind: "tcp", host, port, send: "hello", waits: 500 } as const;
    expect((await guest.visitor.try(silence)).text).toBeUndefined();
    expect(served).toEqual([]);
    await logged(guest, {
      stage: "connect",
      allowed: false,
      address: metadata,
      by: { kind: "protected", range: "metadata" },
    });
    await logged(guest, { address: neighbour.address, by: { kind: "protected", range: "sandboxes" } });
  },
);

test("what another table redirects goes on where both ends of it are allowed, and only there", async () => {
  const [first, second] = [internet.address(1), internet.address(2)];
  const guest = await network.enter(network.policy([`allow ${first}`]));
  await redirect(guest, first, `dnat to ${second}`);
  expect(await knock(guest, first, "tcp", 7)).toEqual(refused);
  await logged(guest, { address: second, port: 7, by: { kind: "default" } });
  await network.gate.set(guest.id, network.policy([`allow ${first}`, `allow ${second}:7`]));
  expect(await knock(guest, first, "tcp", 7)).toMatchObject({ text: "hello" });
  await redirect(guest, first, `dnat to ${network.gateway}`);
  const opened = [`allow ${first}`, `allow ${network.gateway}:${port}/tcp`];
  await network.gate.set(guest.id, network.policy(opened));
  expect(await knock(guest, first)).toMatchObject({ text: "node" });
  await network.gate.set(guest.id, network.policy([...opened, `deny ${network.gateway}`]));
  expect(await knock(guest, first)).toEqual(refused);
  expect(served).toHaveLength(1);
});

test("a name's connections lead nowhere else, either", async () => {
  const name = "there.example.test";
  await internet.setZone({ [name]: [3] });
  const guest = await network.enter(
    network.policy([`allow ${name}:80,${port}`, `allow ${name}:${port}/udp`]),
  );
  await guest.query(name);
  const host = internet.address(3);
  const send = `GET / HTTP/1.1\r\nHost: ${name}\r\n\r\n`;
  const get = (at: number) => guest.visitor.try({ kind: "tcp", host, port: at, send });
  expect(await get(80)).toMatchObject(answered);
  for (const target of [network.gateway, neighbour.address, metadata]) {
    await redirect(guest, host, `dnat to ${target}`);
    expect((await get(port)).text ?? "403 Forbidden").toContain("403 Forbidden");
    expect((await knock(guest, host, "udp")).error).toBeDefined();
  }
  expect(served).toEqual([]);
});
