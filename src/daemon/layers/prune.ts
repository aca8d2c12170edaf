import { lstat, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { mapBounded } from "../bounded.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { removeSilentNodes } from "./leases.ts";
import { reachableDigests } from "./reachable.ts";
import { digestOfName, type StorePaths } from "./store-paths.ts";
import { bringBack, setAside } from "./trash.ts";
import { withWorkDirectory } from "./work-directory.ts";

/** Files that are looked at together. */
const parallel = 16;

export interface PruneOptions {
  /** Milliseconds for which new files are left alone, and for which what is set aside can be had back. */
  readonly graceMs: number;
  readonly dryRun?: boolean;
  /** Digests of layers that are in use, as far as the store itself may not know. */
  readonly inUse?: ReadonlySet<string>;
  readonly signal?: AbortSignal;
}

export interface PrunedFile {
  readonly digest: string;
  readonly kind: "manifest" | "blob";
  readonly bytes: number;
  /** `set_aside`: out of use, and freed by a prune after the grace time unless it is needed before. */
  readonly action: "set_aside" | "freed";
}

/**
 * Removes what nothing leads to: no tag, alias or image, no lease, and nobody in `inUse`. Any number of prunes, builds and nodes may be at
 * work at the same time; see {@link Lease} and docs/decisions/0013-layer-store.md for why nothing in use can go.
 *
 * @throws DSecError `layer_corrupt` when it cannot be told what must stay; nothing is removed then. `cancelled`
 */
export async function pruneStore(paths: StorePaths, options: PruneOptions): Promise<PrunedFile[]> {
  return withWorkDirectory(paths.temporary, async (work) => {
    // Nodes and builds may be on other machines: the store's clock is the one they share.
    const now = (await stat(work)).mtimeMs;
    const { inUse, dryRun = false, signal } = options;
    const before = await reachableDigests(paths, now, inUse);
    const pruned: PrunedFile[] = [];
    for (const file of await filesOf(paths)) {
      throwIfCancelled(signal);
      if (before.has(file.digest) || now - file.mtimeMs < options.graceMs) continue;
      if (dryRun || (await setAside(paths, file.path, now))) pruned.push(prunedFile(file, "set_aside"));
    }
    if (dryRun) return pruned;
    await removeSilentNodes(paths, now);
    const after = await reachableDigests(paths, now, inUse);
    for (const file of await filesOf(paths, true)) {
      if (after.has(file.digest)) {
        await bringBack(paths, file.path);
        forget(pruned, file.digest);
      } else if (now - file.mtimeMs >= options.graceMs) {
        throwIfCancelled(signal);
        await rm(paths.aside(file.path), { force: true });
        forget(pruned, file.digest);
        pruned.push(prunedFile(file, "freed"));
      }
    }
    return pruned;
  });
}

interface StoredFile {
  readonly digest: string;
  readonly kind: PrunedFile["kind"];
  /** In use; what is aside has its name from it. */
  readonly path: string;
  readonly bytes: number;
  readonly mtimeMs: number;
}

/** Bytes of what waits for its removal. */
export async function bytesAside(paths: StorePaths): Promise<number> {
  return (await filesOf(paths, true)).reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Every manifest and blob: manifests first, so that no layer that looks whole lacks a blob. */
export async function filesOf(paths: StorePaths, aside = false): Promise<StoredFile[]> {
  const files: StoredFile[] = [];
  for (const [kind, folder] of [
    ["manifest", paths.manifests],
    ["blob", paths.blobs],
  ] as const) {
    const names = await readdir(aside ? paths.aside(folder) : folder).catch(nothingThere);
    const found = await mapBounded(names, parallel, async (name): Promise<StoredFile[]> => {
      const digest = digestOfName(name);
      if (digest === undefined) return [];
      const path = join(folder, name);
      const stats = await lstat(aside ? paths.aside(path) : path).catch(nothingThere);
      return "mtimeMs" in stats ? [{ digest, kind, path, bytes: stats.size, mtimeMs: stats.mtimeMs }] : [];
    });
    files.push(...found.flat());
  }
  return files;
}

function nothingThere(error: unknown): [] {
  if (isErrno(error, "ENOENT")) return [];
  throw error;
}

function prunedFile({ digest, kind, bytes }: StoredFile, action: PrunedFile["action"]): PrunedFile {
  return { digest, kind, bytes, action };
}

function forget(pruned: PrunedFile[], digest: string): void {
  const index = pruned.findIndex((file) => file.digest === digest);
  if (index !== -1) pruned.splice(index, 1);
}
