/** What sandboxes that read the same layer cost in memory: two of them read a file of 500 MB, one after the other. */
import { execFile } from "node:child_process";
import { createWriteStream } from "node:fs";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { randomFillSync } from "node:crypto";
import { promisify } from "node:util";
import { cachedBytes } from "../../src/backends/linux/page-cache.ts";
import { openLayerStore } from "../../src/daemon/layers/layer-store.ts";
import { DSecClient } from "../../src/sdk/index.ts";
import { startFleet } from "../e2e/fleet.ts";
import { fixed, Report } from "./support/report.ts";

const run = promisify(execFile);
const megabyte = 1_000_000;
const fileBytes = 500 * megabyte;

const report = new Report("Layers: memory of what is read");
const directory = await mkdtemp("/var/tmp/dsec-bench-layers-");
try {
  const storePath = join(directory, "store");
  const store = await openLayerStore(storePath);
  await mkdir(join(directory, "tree"));
  await pipeline(Readable.from(noise()), createWriteStream(join(directory, "tree", "big")));
  await store.build({ reference: "busybox", from: "busybox" });
  const { digest } = await store.build({
    reference: "big:1",
    kind: "toolkit",
    from: join(directory, "tree"),
  });
  const [blob] = (await store.manifest(digest)).data;
  const original = store.blobPath(blob?.digest ?? "");
  // What publishing left in memory is none of the readers' doing.
  await run("dd", [`if=${original}`, "iflag=nocache", "count=0", "status=none"]);
  await using fleet = await startFleet({ flags: ["--layer-store", storePath] });
  await using client = await DSecClient.open({ address: fleet.address, token: fleet.token });
  const file = join(fleet.runDir, "layers", digest.slice("sha256:".length), "big");
  const rows: string[][] = [];
  const began = await machineCache();
  const look = async (when: string): Promise<void> => {
    const numbers = [cachedBytes(file), cachedBytes(original), (await machineCache()) - began];
    rows.push([when, ...numbers.map((bytes) => fixed(bytes / megabyte, 0))]);
  };
  for (const nth of ["first", "second"]) {
    const sandbox = await client.runContainer({ image: "busybox", toolkits: ["big:1"] });
    if (nth === "first") await look("before");
    const { exitCode } = await sandbox.runShell("cat /big > /dev/null");
    if (exitCode !== 0) throw new Error(`reading failed with ${exitCode}`);
    await look(`the ${nth} sandbox has read 500 MB`);
  }
  report.table(
    "Page cache, MB",
    ["", "the layer's file", "its blob in the store", "whole machine, beside whatever else runs"],
    rows,
  );
  await report.save("layers", "npm run bench -- layers");
} finally {
  await rm(directory, { recursive: true, force: true });
}

function* noise(): Generator<Buffer, void, undefined> {
  for (let left = fileBytes; left > 0; left -= megabyte) yield randomFillSync(Buffer.alloc(megabyte));
}

/** Bytes of the machine's page cache. */
async function machineCache(): Promise<number> {
  const [, kibibytes = "0"] = /^Cached:\s+(\d+) kB$/m.exec(await readFile("/proc/meminfo", "utf8")) ?? [];
  return Number(kibibytes) * 1024;
}
