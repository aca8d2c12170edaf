import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createConnection, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { SandboxNetwork, type NetworkLease } from "../../../src/daemon/network/sandbox-network.ts";
import { output, temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";

const never = new AbortController().signal;

let node: TemporaryNode;
let cleanup: AsyncDisposableStack;

beforeEach(async () => {
  node = await temporaryNode();
  cleanup = new AsyncDisposableStack();
  cleanup.use(node);
});

afterEach(async () => {
  await cleanup.disposeAsync();
});

function options(): { runDir: string; instance: string; range: string } {
  return { runDir: node.runDir, instance: node.instance, range: node.networkRange };
}

async function openNetwork(): Promise<SandboxNetwork> {
  const network = await SandboxNetwork.open(options());
  cleanup.defer(() => network.close({ everything: true }));
  return network;
}

async function acquire(network: SandboxNetwork): Promise<NetworkLease> {
  const lease = await network.acquire(never);
  cleanup.defer(() => lease.release());
  return lease;
}

/** Runs a program in the sandbox's namespace, and until the test's end. */
async function startInside(lease: NetworkLease, script: string): Promise<void> {
  const child = spawn("nsenter", [`--net=${lease.netnsPath}`, process.execPath, "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = once(child, "close");
  cleanup.defer(async () => {
    child.kill("SIGKILL");
    await closed;
  });
  await once(child.stdout, "data");
}

async function listenOnHost(): Promise<{ port: number; connections: string[] }> {
  const connections: string[] = [];
  const server = createServer((socket) => {
    connections.push(socket.remoteAddress ?? "");
    socket.destroy();
  });
  server.listen(0, "::");
  await once(server, "listening");
  cleanup.defer(async () => void server.close());
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("not a port");
  return { port: address.port, connections };
}

async function exchange(host: string, port: number, text: string): Promise<string> {
  const socket = createConnection({ host, port });
  socket.end(text);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) if (Buffer.isBuffer(chunk)) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const echoServer = `require("node:net").createServer((s) => s.pipe(s)).listen(4000, "0.0.0.0", () => console.log("up"))`;

async function linksOf(instance: string): Promise<string[]> {
  return (await tracesOf({ ...node, instance })).filter((trace) => trace.startsWith("link "));
}

/** Packets that a drop rule of the instance has counted. */
async function dropped(): Promise<number> {
  const table = await output("nft", "list", "table", "inet", node.instance);
  return [...table.matchAll(/counter packets (\d+)/g)].reduce((sum, [, packets]) => sum + Number(packets), 0);
}

test("the host reaches a server in the sandbox", async () => {
  const network = await openNetwork();
  const lease = await acquire(network);
  await startInside(lease, echoServer);
  expect(await exchange(lease.address, 4000, "hello")).toBe("hello");
  expect(await dropped()).toBe(0);
});

test("a sandbox has a loopback, one address, one way out and no IPv6 address", async () => {
  const lease = await acquire(await openNetwork());
  const { gateway } = lease;
  const inside = (...args: string[]) =>
    output("nsenter", `--net=${lease.netnsPath}`, "ip", "-brief", ...args);
  expect((await inside("-4", "address")).replaceAll(/\s+/g, " ")).toMatch(
    new RegExp(`^lo UNKNOWN 127.0.0.1/8 eth0@\\S+ UP ${lease.address.replaceAll(".", "\\.")}/32 $`),
  );
  expect(await inside("-6", "address", "show", "dev", "eth0")).toBe("");
  expect((await inside("route")).trim().split(/ *\n/)).toEqual([
    expect.stringContaining(`default via ${gateway} dev eth0`),
    expect.stringContaining(`${gateway} dev eth0`),
  ]);
});

test("root in the sandbox reaches neither the host, nor other sandboxes, nor anything else, with any route", async () => {
  const network = await openNetwork();
  const [lease, other] = [await acquire(network), await acquire(network)];
  await startInside(other, echoServer);
  const host = await listenOnHost();
  const udp = createSocket("udp4");
  udp.bind(0, "0.0.0.0");
  await once(udp, "listening");
  cleanup.defer(async () => void udp.close());
  const datagrams: string[] = [];
  udp.on("message", (message) => datagrams.push(message.toString()));

  const hostAddresses = Object.values(networkInterfaces()).flatMap((list) =>
    (list ?? [])
      .filter(({ family, internal }) => family === "IPv4" && !internal)
      .map(({ address }) => address),
  );
  const { gateway } = lease;
  // What root with CAP_NET_ADMIN would do.
  const enter = ["nsenter", `--net=${lease.netnsPath}`] as const;
  await output(...enter, "ip", "link", "set", "eth0", "addrgenmode", "eui64");
  await output(...enter, "ip", "-6", "address", "add", "fe80::2/64", "dev", "eth0", "nodad");
  await output(...enter, "ip", "-6", "route", "add", "default", "dev", "eth0");
  await output("ip", "link", "set", lease.link, "addrgenmode", "eui64");
  await output("ip", "-6", "address", "add", "fe80::1/64", "dev", lease.link, "nodad");
  const targets = [
    ...[gateway, ...hostAddresses, "169.254.169.254", "fe80::1%eth0"].map((address) => [address, host.port]),
    [other.address, 4000],
  ];
  const before = await dropped();
  const script = `
    const net = require("node:net"), udp = require("node:dgram").createSocket("udp4");
    const attempts = ${JSON.stringify(targets)}.map(([host, port]) => new Promise((resolve) => {
      const socket = net.connect({ host, port, timeout: 1500 });
      const end = (result) => { socket.destroy(); resolve(result); };
      socket.on("connect", () => end("connected")).on("timeout", () => end("timeout")).on("error", (e) => end(e.code));
    }));
    const sent = new Promise((resolve) => udp.send("leak", ${udp.address().port}, ${JSON.stringify(gateway)}, resolve));
    Promise.all([...attempts, sent]).then((all) => { udp.close(); console.log(JSON.stringify(all.slice(0, -1))); });`;
  const results: unknown = JSON.parse(await output(...enter, process.execPath, "-e", script));
  expect(results).toHaveLength(targets.length);
  expect(results).not.toContain("connected");
  expect(await dropped()).toBeGreaterThanOrEqual(before + targets.length - 1);
  // The same server answers those who may ask.
  await exchange("127.0.0.1", host.port, "");
  expect(host.connections).toEqual(["::ffff:127.0.0.1"]);
  expect(datagrams).toEqual([]);
});

test("a sandbox cannot speak with another's address", async () => {
  const network = await openNetwork();
  const [lease, other] = [await acquire(network), await acquire(network)];
  const { gateway } = lease;
  const enter = ["nsenter", `--net=${lease.netnsPath}`] as const;
  await output(...enter, "ip", "address", "add", `${other.address}/32`, "dev", "eth0");
  const before = await output("nft", "list", "chain", "inet", node.instance, "source");
  const script = `const s = require("node:dgram").createSocket("udp4");
    s.bind(0, ${JSON.stringify(other.address)}, () => s.send("x", 9, ${JSON.stringify(gateway)}, () => s.close()));`;
  await output(...enter, process.execPath, "-e", script);
  expect(before).toContain("packets 0");
  expect(await output("nft", "list", "chain", "inet", node.instance, "source")).toContain("packets 1");
});

test("members are unique, and are made as fast as they are taken", async () => {
  const network = await openNetwork();
  const leases = await Promise.all(Array.from({ length: 120 }, () => acquire(network)));
  expect(new Set(leases.map(({ address }) => address)).size).toBe(120);
  expect(new Set(leases.map(({ netnsPath }) => netnsPath)).size).toBe(120);
});

test("an empty range is said so at once, and serves again when sandboxes have ended", async () => {
  node = { ...node, networkRange: node.networkRange.replace(/\/\d+$/, "/29") };
  const network = await openNetwork();
  const leases = await Promise.all(Array.from({ length: 5 }, () => acquire(network)));
  await expect(network.acquire(never)).rejects.toMatchObject({ code: "no_capacity" });
  leases[0]?.release();
  const again = await vi.waitFor(() => acquire(network), { timeout: 10_000 });
  expect(again.address).toBe(leases[0]?.address);
});

test("who gives up waiting gets cancelled, and takes nothing along", async () => {
  const network = await openNetwork();
  const cancel = new AbortController();
  const waiting = Array.from({ length: 100 }, () => network.acquire(cancel.signal));
  cancel.abort();
  const results = await Promise.allSettled(waiting);
  for (const result of results) if (result.status === "fulfilled") result.value.release();
  const reasons = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
  expect(reasons).not.toEqual([]);
  expect(reasons).toEqual(reasons.map(() => expect.objectContaining({ code: "cancelled" })));
  await expect(network.acquire(AbortSignal.abort())).rejects.toMatchObject({ code: "cancelled" });
});

test("closing without sandboxes leaves no link, rule, route or address", async () => {
  const network = await SandboxNetwork.open(options());
  (await network.acquire(never)).release();
  await network.close({ everything: true });
  await vi.waitFor(async () => expect(await tracesOf(node)).toEqual([]), { timeout: 10_000 });
  await expect(network.acquire(never)).rejects.toMatchObject({ code: "cancelled" });
});

test("a range that the node uses is refused, naming the route", async () => {
  await output("ip", "route", "add", "unreachable", node.networkRange.replace("0.0/16", "128.0/17"));
  cleanup.defer(
    async () => void (await output("ip", "route", "del", node.networkRange.replace("0.0/16", "128.0/17"))),
  );
  await expect(SandboxNetwork.open(options())).rejects.toMatchObject({
    code: "address_in_use",
    message: expect.stringContaining(node.networkRange.replace("0.0/16", "128.0/17")),
  });
  expect(await output("nft", "list", "tables")).not.toContain(node.instance);
});

test("a table of the instance's name that somebody else has made is refused, and left as it is", async () => {
  const own = ["inet", node.instance] as const;
  await output("nft", "add", "table", ...own);
  cleanup.defer(async () => void (await output("nft", "delete", "table", ...own)));
  await output("nft", "add", "chain", ...own, "theirs");
  const before = await output("nft", "list", "table", ...own);
  await expect(SandboxNetwork.open(options())).rejects.toMatchObject({
    code: "config_invalid",
    message: expect.stringContaining(`inet ${node.instance} is none of dsec's`),
  });
  expect(await output("nft", "list", "table", ...own)).toBe(before);
  expect(await tracesOf(node)).toEqual([`table inet ${node.instance}`]);
});

test("a node without nftables has no network, and is told so; nothing is left", async () => {
  const module = fileURLToPath(new URL("../../../src/daemon/network/sandbox-network.ts", import.meta.url));
  const script = `
    const { SandboxNetwork } = await import(${JSON.stringify(module)});
    await SandboxNetwork.open(${JSON.stringify(options())}).catch(({ code, cause }) => console.log(code + ": " + cause.message));`;
  const hidden = `mount --bind /dev/null "$(realpath "$(command -v nft)")" && exec "$@"`;
  const run = [process.execPath, "--input-type=module", "-e", script];
  expect(await output("unshare", "--mount", "sh", "-c", hidden, "sh", ...run)).toBe(
    "backend_unavailable: nft is not installed\n",
  );
  expect(await tracesOf(node)).toEqual([]);
});

test("a range that another instance serves is refused", async () => {
  await openNetwork();
  const second = await temporaryNode();
  cleanup.use(second);
  await expect(
    SandboxNetwork.open({ runDir: second.runDir, instance: second.instance, range: node.networkRange }),
  ).rejects.toMatchObject({ code: "address_in_use" });
});

test("members of a killed daemon vanish with it; the rules stay for its sandboxes; a new daemon goes on", async () => {
  const module = fileURLToPath(new URL("../../../src/daemon/network/sandbox-network.ts", import.meta.url));
  const script = `
    const { SandboxNetwork } = await import(${JSON.stringify(module)});
    const network = await SandboxNetwork.open(${JSON.stringify(options())});
    const signal = new AbortController().signal;
    const leases = [await network.acquire(signal), await network.acquire(signal)];
    console.log(JSON.stringify(leases));
    setInterval(() => {}, 1000);`;
  const daemon = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(daemon, "close");
  const [printed] = await once(daemon.stdout, "data");
  const [first, second]: { netnsPath: string; address: string; link: string }[] = JSON.parse(String(printed));
  if (first === undefined || second === undefined) throw new Error("no leases");
  // Stands for a sandbox: a process that keeps the namespace.
  const sandbox = spawn("nsenter", [`--net=${first.netnsPath}`, process.execPath, "-e", echoServer], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const sandboxEnded = once(sandbox, "close");
  cleanup.defer(async () => {
    sandbox.kill("SIGKILL");
    await sandboxEnded;
  });
  await once(sandbox.stdout, "data");
  daemon.kill("SIGKILL");
  await ended;
  await vi.waitFor(async () => expect(await linksOf(node.instance)).toEqual([`link ${first.link}`]), {
    timeout: 10_000,
  });

  const network = await openNetwork();
  const leases = await Promise.all(Array.from({ length: 20 }, () => acquire(network)));
  expect(leases.map(({ link }) => link)).not.toContain(first.link);
  expect(await network.sweep(new Set([first.link]), never)).toEqual([]);
  const adopted = network.adopt(first.link);
  expect(adopted?.address).toBe(first.address);
  expect(await exchange(first.address, 4000, "still here")).toBe("still here");
  expect(await network.sweep(new Set(), never)).toEqual([]);
  adopted?.release();
  expect(await network.sweep(new Set(), never)).toEqual([first.link]);
  expect(await linksOf(node.instance)).not.toContain(`link ${first.link}`);
});

test("a sweep removes leftover links of its own, and touches nobody else's", async () => {
  const network = await openNetwork();
  const foreign = `x${node.instance}`;
  await output("ip", "link", "add", `${node.instance}_zz`, "type", "veth", "peer", "name", `${foreign}p`);
  await output("ip", "link", "add", foreign, "type", "veth", "peer", "name", `${foreign}q`);
  await output("nft", "add", "table", "inet", foreign);
  await output("nft", "add", "chain", "inet", foreign, "mine");
  cleanup.defer(async () => {
    await output("ip", "link", "del", foreign);
    await output("nft", "delete", "table", "inet", foreign);
  });
  const before = await output("nft", "list", "table", "inet", foreign);
  const lease = await acquire(network);
  expect(await network.sweep(new Set(), never)).toEqual([`${node.instance}_zz`]);
  const links = await output("ip", "-brief", "link");
  expect(links).toContain(foreign);
  expect(links).toContain(lease.link);
  await (await SandboxNetwork.open({ ...options(), instance: node.instance })).close({ everything: false });
  expect(await output("nft", "list", "table", "inet", foreign)).toBe(before);
});
