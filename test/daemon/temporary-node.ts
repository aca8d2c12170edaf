import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { firewallOf } from "../../src/daemon/network/firewall.ts";
import { freshNetworkRange } from "../setup/network-range.ts";

const run = promisify(execFile);

/** Directories, an instance name and a network range that no other test and no real fleet uses. */
export interface TemporaryNode extends AsyncDisposable {
  readonly directory: string;
  readonly dataDir: string;
  readonly runDir: string;
  readonly layerStore: string;
  readonly instance: string;
  readonly networkRange: string;
}

export async function temporaryNode(): Promise<TemporaryNode> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-node-"));
  return {
    directory,
    dataDir: join(directory, "data"),
    runDir: join(directory, "run"),
    layerStore: join(directory, "layers"),
    instance: `t${randomBytes(3).toString("hex")}`,
    networkRange: freshNetworkRange(),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

/** Runs a program and returns its stdout. */
export async function output(command: string, ...args: readonly string[]): Promise<string> {
  return (await run(command, args)).stdout;
}

/** What a node has on the machine: mounts and loop devices below its directory, links and tables of its instance. */
export async function tracesOf(node: TemporaryNode): Promise<string[]> {
  const mounts = (await readFile("/proc/self/mountinfo", "utf8")).split("\n");
  const loops = (await output("losetup", "--list", "--noheadings", "--output", "BACK-FILE")).split("\n");
  const links = await readdir("/sys/class/net");
  const tables = (await output("nft", "list", "tables")).split("\n");
  const routes = (await output("ip", "route")).split("\n");
  const network = node.networkRange.replace(/0\.0\/16$/, "");
  const { proxyMark } = firewallOf({
    table: node.instance,
    linkPrefix: "",
    gateway: "",
    range: "",
    maxFlows: 0,
  });
  const marked = (await output("ip", "rule")).split("\n").concat(await proxyRoutes(proxyMark));
  return [
    ...mounts.filter((line) => line.includes(node.directory)).map((line) => `mount ${line}`),
    ...loops.filter((line) => line.includes(node.directory)).map((line) => `loop ${line}`),
    ...links.filter((link) => link.startsWith(`${node.instance}_`)).map((link) => `link ${link}`),
    ...tables.filter((line) => line.endsWith(` ${node.instance}`)),
    ...routes.filter((line) => line.includes(network)).map((line) => `route ${line}`),
    ...marked.filter((line) => line.includes(`${proxyMark}`)).map((line) => `proxy ${line}`),
  ];
}

async function proxyRoutes(table: number): Promise<string[]> {
  const all = await output("ip", "-4", "route", "show", "table", "all");
  return all.split("\n").filter((line) => line.includes(`table ${table}`));
}
