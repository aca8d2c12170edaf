import { mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { digestOfName, hexOf, type StorePaths } from "./store-paths.ts";

/**
 * A lease keeps a layer, or a blob that has no layer yet, from being pruned. It is an empty file named by the digest, in a folder
 * of its owner. Whoever wants to use something takes the lease *first* and looks for it *then*; a prune sets aside first
 * and looks for leases then. So one of both sees the other, without a lock. Nothing dangles: the leases of a build are in its work
 * directory, which is removed when its process is gone; those of a node count for as long as it gives signs of life.
 */
export interface Lease {
  readonly digest: string;
  /** For people: `node n1`, `a build on host`. */
  readonly holder: string;
}

/** Milliseconds for which a node's last sign of life counts: longer than any outage in which its sandboxes are worth keeping. */
const nodeLeaseMs = 24 * 3_600_000;
/** Of a node's folder of leases: its time is that of the last sign of life. */
const aliveFile = "alive";
const workFolder = "leases";

/** The leases of one node. The store may be one that the node can only read: then it has none, and {@link writable} says so. */
export class NodeLeases {
  readonly #folder: string;
  readonly writable: boolean;

  private constructor(folder: string, writable: boolean) {
    this.#folder = folder;
    this.writable = writable;
  }

  /** @param owner `<node>+<what tells nodes of that name apart>` */
  static async open(paths: StorePaths, owner: string): Promise<NodeLeases> {
    const folder = join(paths.leases, owner);
    try {
      // Not at once: then Node takes a read-only parent for a missing one.
      for (const path of [paths.leases, folder]) await mkdir(path).catch(ignoreExisting);
      await writeFile(join(folder, aliveFile), "");
    } catch (error) {
      if (isErrno(error, "EROFS", "EACCES", "EPERM")) return new NodeLeases(folder, false);
      throw error;
    }
    return new NodeLeases(folder, true);
  }

  async add(digest: string): Promise<void> {
    if (this.writable) await writeFile(join(this.#folder, hexOf(digest)), "");
  }

  async drop(digest: string): Promise<void> {
    if (this.writable) await rm(join(this.#folder, hexOf(digest)), { force: true });
  }

  /** Drops all but those of `digests`, and makes sure of these: of an earlier daemon, whose layers are known only now. */
  async keepOnly(digests: ReadonlySet<string>): Promise<void> {
    if (!this.writable) return;
    for (const digest of digests) await this.add(digest);
    for (const name of await readdir(this.#folder)) {
      const digest = digestOfName(name);
      if (digest !== undefined && !digests.has(digest)) await this.drop(digest);
    }
  }

  /** A sign of life; the time is that of the store's own clock. */
  async refresh(): Promise<void> {
    if (this.writable) await writeFile(join(this.#folder, aliveFile), String(Date.now()));
  }

  /** Where the node uses no layer any more. */
  async close(): Promise<void> {
    if (this.writable) await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Takes leases that end with a work directory. */
export async function leaseForWork(work: string, digests: readonly string[]): Promise<void> {
  await mkdir(join(work, workFolder), { recursive: true });
  for (const digest of digests) await writeFile(join(work, workFolder, hexOf(digest)), "");
}

/**
 * Every lease in force. What a build leased is to be read before what it publishes: it lets go of the one after it has made the other.
 *
 * @param now by the store's clock, milliseconds
 */
export async function readLeases(paths: StorePaths, now: number): Promise<Lease[]> {
  const leases: Lease[] = [];
  for (const owner of await entries(paths.temporary)) {
    const [host = ""] = owner.split("+");
    leases.push(...(await leasesIn(join(paths.temporary, owner, workFolder), `a build on ${host}`)));
  }
  for (const owner of await entries(paths.leases)) {
    const folder = join(paths.leases, owner);
    if (await isSilent(folder, now)) continue;
    const [node = ""] = owner.split("+");
    leases.push(...(await leasesIn(folder, `node ${node}`)));
  }
  return leases;
}

/** Removes the leases of nodes that gave no sign of life for too long. */
export async function removeSilentNodes(paths: StorePaths, now: number): Promise<void> {
  for (const owner of await entries(paths.leases)) {
    const folder = join(paths.leases, owner);
    if (await isSilent(folder, now)) await rm(folder, { recursive: true, force: true });
  }
}

async function isSilent(folder: string, now: number): Promise<boolean> {
  const alive = await stat(join(folder, aliveFile)).catch(() => undefined);
  return alive === undefined || now - alive.mtimeMs > nodeLeaseMs;
}

async function leasesIn(folder: string, holder: string): Promise<Lease[]> {
  return (await entries(folder)).flatMap((name) => {
    const digest = digestOfName(name);
    return digest === undefined ? [] : [{ digest, holder }];
  });
}

function ignoreExisting(error: unknown): void {
  if (!isErrno(error, "EEXIST")) throw error;
}

/** Names in a folder; none where there is no folder. */
async function entries(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}
