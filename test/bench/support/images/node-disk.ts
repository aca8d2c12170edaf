/** The local disk of a node, as a file system of its own: what is written to it is counted by the kernel, whoever else writes elsewhere. */
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { open } from "node:fs/promises";
import { listMounts, unmountIfMounted } from "../../../../src/backends/linux/mount.ts";
import { runProgram } from "../../../../src/daemon/resources/program.ts";

const sampleMs = 500;
const windowSeconds = 2;
const perWindow = (windowSeconds * 1000) / sampleMs;
/** Column of /sys/block/…/stat: sectors of 512 bytes written. */
const sectorsWritten = 6;
const sectorBytes = 512;

export interface DiskWrites {
  /** Bytes, everything flushed. */
  readonly bytes: number;
  /** Bytes a second, the most of any two seconds. */
  readonly peak: number;
}

export class NodeDisk implements AsyncDisposable {
  /** Where it is mounted. */
  readonly path: string;
  readonly #image: string;
  readonly #device: string;

  private constructor(path: string, image: string, device: string) {
    this.path = path;
    this.#image = image;
    this.#device = device;
  }

  /** Makes an empty one. @param directory for its file and its mount point */
  static async make(directory: string, gibibytes: number): Promise<NodeDisk> {
    const image = join(directory, "node-disk.img");
    const path = join(directory, "node");
    mkdirSync(path, { recursive: true });
    await removeLeft(path, image);
    const file = await open(image, "wx");
    await file.truncate(gibibytes * 2 ** 30);
    await file.close();
    // nothing is written later than asked for
    const options = "lazy_itable_init=0,lazy_journal_init=0";
    await runProgram("mkfs.ext4", ["-q", "-E", options, image]);
    const loop = ["--find", "--show", "--direct-io=on", image];
    const device = (await runProgram("losetup", loop)).trim();
    const disk = new NodeDisk(path, image, device);
    try {
      await runProgram("mount", [device, path]);
    } catch (error) {
      await runProgram("losetup", ["--detach", device]);
      throw error;
    }
    return disk;
  }

  /** Counts what `work` has written to it, and flushes it then. */
  async watch<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly writes: DiskWrites }> {
    await this.#flush();
    const before = this.#written();
    const samples = Array<number>(perWindow).fill(before);
    const timer = setInterval(() => samples.push(this.#written()), sampleMs);
    try {
      const result = await work();
      await this.#flush();
      const bytes = this.#written() - before;
      const rates = samples
        .slice(perWindow)
        .map((sample, index) => (sample - (samples[index] ?? 0)) / windowSeconds);
      return { result, writes: { bytes, peak: Math.max(0, ...rates) } };
    } finally {
      clearInterval(timer);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await runProgram("umount", [this.path]);
    await runProgram("losetup", ["--detach", this.#device]);
    rmSync(this.#image);
  }

  async #flush(): Promise<void> {
    await runProgram("sync", ["--file-system", this.path]);
  }

  #written(): number {
    const stat = readFileSync(`/sys/block/${basename(this.#device)}/stat`, "utf8")
      .trim()
      .split(/\s+/);
    return Number(stat[sectorsWritten]) * sectorBytes;
  }
}

/** Of a run that was killed. */
async function removeLeft(path: string, image: string): Promise<void> {
  const below = listMounts().filter(({ target }) => target === path || target.startsWith(`${path}/`));
  for (const { target } of below.toReversed()) unmountIfMounted(target);
  const loops = await runProgram("losetup", ["--noheadings", "--output", "NAME", "--associated", image]);
  for (const device of loops.split("\n").filter((name) => name !== ""))
    await runProgram("losetup", ["--detach", device.trim()]);
  rmSync(image, { force: true });
}
