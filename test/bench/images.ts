/**
 * A burst of sandboxes over several different images behind a slow link, as the paper measures it: layers read on demand
 * against `docker pull`, and a workspace as a layer against an archive unpacked in each sandbox.
 */
import { randomInt } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { loadavg } from "node:os";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { startFleet } from "../e2e/fleet.ts";
import { startDockerd } from "../setup/dockerd.ts";
import { barChart, type Panel } from "./support/bar-chart.ts";
import {
  burstOfContainers,
  burstOfSandboxes,
  type Burst,
  type BurstResult,
  type Task,
} from "./support/images/burst.ts";
import { ImageBuilder } from "./support/images/image-builder.ts";
import { ImageSupply } from "./support/images/image-supply.ts";
import { NodeDisk } from "./support/images/node-disk.ts";
import { imageRecipes, workspaceRecipe } from "./support/images/recipes.ts";
import { ThrottledLink } from "./support/images/throttled-link.ts";
import { fixed, Report, times } from "./support/report.ts";

const { values: given } = parseArgs({
  options: {
    work: { type: "string", default: "/var/tmp/dsec-bench-images" },
    link: { type: "string", default: "400mbit" },
    "per-image": { type: "string", default: "2" },
    workspaces: { type: "string", default: "8" },
    "at-once": { type: "string", default: "8" },
    disk: { type: "string", default: "40" },
  },
});
const atOnce = Number(given["at-once"]);
const mebibyte = 2 ** 20;
// not where fleets of tests have theirs
const flags = ["--network-range", `10.${randomInt(40, 90)}.0.0/16`];
const directory = resolve(given.work);
await mkdir(directory, { recursive: true });

const method = `Every sandbox is made from one of several different images, builds or tests something real in it, and ends. Both contenders have the same images
and do the same work, in the same order, with the same memory limit and as many at once. dsec has each image in a
layer store of WebDAV (\`--layer-store rclone:…\`), imported by \`dsec layer import\`; docker has it as two gzipped layers in a registry, the lower one of them shared by
all images, and \`docker run\` pulls what is missing. The store and the
registry stand behind one link (a network namespace, tc tbf). What the node keeps (docker's data, dsec's data, what rclone has read) lies on a disk of its own, empty
at the start, whose writes the kernel counts; flushing is counted, too, but in no time. The peak is that of any two seconds.

The workspace's archive lies in a layer of its own, so that it is fetched once and every sandbox unpacks it from the page cache: the best case for
archives.`;
const say = (message: string): void => console.error(`# ${message}`);
const builder = new ImageBuilder(directory, say);
const report = new Report("Images: layers on demand against docker pull");
await using link = await ThrottledLink.open(given.link);
const supply = await ImageSupply.open(builder, directory, link);
const [load = 0] = loadavg();
report.text(`${method}\n\nLoad average of the machine when the bursts began: ${fixed(load)}.`);
await supply.describe(report);
const panels = [...(await images()), ...(await workspaces())];
report.text(
  "The paper, on its own fleet and workload: 1.71 times and 57 % fewer bytes written for the burst, 1.76 times and 5.5 times fewer for the workspace.",
);
report.text("![Bars of the figures above](images.svg)");
const picture = barChart(`Bursts over a link of ${link.rate}`, panels);
const { link: rate, workspaces: count, "per-image": perImage } = given;
const command = `npm run bench -- images --link ${rate} --per-image ${perImage} --workspaces ${count} --at-once ${atOnce}`;
await report.save("images", command, { "images.svg": picture });

/** All images at once: a task of each in turn. */
async function images(): Promise<Panel[]> {
  const tasks = Array.from({ length: Number(given["per-image"]) }, () => imageRecipes).flat();
  const onDemand = await withRemoteStore(tasks, supply.specOf);
  const [pulled, dockerLocal] = await withDocker(tasks);
  const local = await withLocalStore(tasks, supply.specOf);
  const contenders = [
    ["dsec, layers on demand", onDemand],
    ["docker pull, cold", pulled],
    ["dsec, all local", local],
    ["docker, all local", dockerLocal],
  ] as const;
  report.table(
    `${tasks.length} sandboxes over ${imageRecipes.length} images, ${atOnce} at once, link ${link.rate}`,
    columns("docker pull"),
    contenders.map(([name, result]) => row(name, result, pulled)),
  );
  return panelsOf("images", contenders);
}

async function workspaces(): Promise<Panel[]> {
  const { work, unpack } = workspaceRecipe;
  const count = Number(given.workspaces);
  const repeat = (text: string): Task[] =>
    Array.from({ length: count }, () => ({ name: "workspace", work: text }));
  const layer = await withRemoteStore(repeat(work), () => supply.workspaceSpec);
  const unpacked = await withRemoteStore(repeat(`${unpack} && ${work}`), () => supply.archiveSpec);
  const contenders = [
    ["workspace as a layer", layer],
    ["tar.gz unpacked", unpacked],
  ] as const;
  report.table(
    `${count} sandboxes with one workspace, ${Math.min(atOnce, count)} at once, link ${link.rate}`,
    columns("tar.gz"),
    contenders.map(([name, result]) => row(name, result, unpacked)),
  );
  return panelsOf("workspaces", contenders);
}

async function withRemoteStore(tasks: readonly Task[], specOf: ImageSupply["specOf"]): Promise<BurstResult> {
  say(`${tasks.length} sandboxes, layers on demand`);
  await using disk = await NodeDisk.make(directory, Number(given.disk));
  await using fleet = await startFleet({ parent: disk.path, layerStore: supply.remoteStore, flags });
  return await burstOfSandboxes(burst(tasks, disk), fleet, specOf);
}

async function withLocalStore(tasks: readonly Task[], specOf: ImageSupply["specOf"]): Promise<BurstResult> {
  say(`${tasks.length} sandboxes, all local`);
  await using disk = await NodeDisk.make(directory, Number(given.disk));
  await using fleet = await startFleet({ parent: disk.path, layerStore: supply.storeDirectory, flags });
  return await burstOfSandboxes(burst(tasks, disk), fleet, specOf);
}

/** First with nothing there, then again with all that was pulled. */
async function withDocker(tasks: readonly Task[]): Promise<[BurstResult, BurstResult]> {
  say(`${tasks.length} containers, pulled by docker`);
  await using disk = await NodeDisk.make(directory, Number(given.disk));
  await using scope = new AsyncDisposableStack();
  const socket = await startDockerd(scope, {
    parent: disk.path,
    flags: { "insecure-registry": supply.registry },
  });
  const cold = await burstOfContainers(burst(tasks, disk), socket, supply.imageOf);
  say(`${tasks.length} containers, images local`);
  return [cold, await burstOfContainers(burst(tasks, disk), socket, supply.imageOf)];
}

function burst(tasks: readonly Task[], disk: NodeDisk): Burst {
  return { tasks, atOnce, link, disk };
}

function columns(peer: string): string[] {
  return [
    "",
    "seconds",
    `${peer}'s time ÷ this`,
    "MB fetched",
    "MB written",
    `written against ${peer}`,
    "peak MB/s written",
    "task p50 s",
    "task p99 s",
  ];
}

function row(name: string, result: BurstResult, peer: BurstResult): string[] {
  const { seconds, fetched, writes, tasks } = result;
  const less = writes.bytes / peer.writes.bytes - 1;
  return [
    name,
    fixed(seconds),
    `${fixed(peer.seconds / seconds, 2)}×`,
    fixed(fetched / mebibyte, 0),
    fixed(writes.bytes / mebibyte, 0),
    result === peer
      ? ""
      : `${less > 0 ? "+" : "−"}${fixed(Math.abs(less) * 100)}% (${times(peer.writes.bytes / writes.bytes)})`,
    fixed(writes.peak / mebibyte, 0),
    fixed(tasks.p50 / 1000),
    fixed(tasks.p99 / 1000),
  ];
}

function panelsOf(what: string, contenders: readonly (readonly [string, BurstResult])[]): Panel[] {
  const panel = (title: string, unit: string, valueOf: (result: BurstResult) => number): Panel => ({
    title: `${what}: ${title}`,
    unit,
    bars: contenders.map(([name, result]) => ({ name, value: valueOf(result) })),
  });
  return [
    panel("completion", "seconds", ({ seconds }) => seconds),
    panel("fetched over the link", "MB", ({ fetched }) => fetched / mebibyte),
    panel("written to the node's disk", "MB", ({ writes }) => writes.bytes / mebibyte),
    panel("highest write rate", "MB/s", ({ writes }) => writes.peak / mebibyte),
  ];
}
