/** Files and trees between this machine and a sandbox. Loaded when the first is copied. */
import { constants } from "node:fs";
import { lstat, open, realpath, stat } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import type { ArchiveResult } from "../protocol/file.ts";
import { readTar } from "../protocol/tar-decode.ts";
import type { RemotePath, SandboxFiles } from "./files.ts";
import { fileChunks } from "./file-chunks.ts";
import { LocalArchive, maxSkipped } from "./local-archive.ts";
import { describe, replaceBy } from "./local-file.ts";
import { LocalTree } from "./local-tree.ts";
import { writeWithHoles } from "./sparse-file.ts";

export interface TransferProgress {
  /** So far; of an archive with its headers. */
  readonly bytes: number;
  /** Where it is known. */
  readonly totalBytes?: number | undefined;
}

export interface TransferOptions {
  /** Keep owners and set-id bits. Otherwise root owns what is uploaded, and you what is downloaded. */
  readonly owners?: boolean;
  /** Copy what a symlink at the end of the source means, instead of the symlink. */
  readonly followSymlinks?: boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: TransferProgress) => void) | undefined;
}

/** See SandboxFiles.upload. */
export async function upload(
  files: SandboxFiles,
  localPath: string | Buffer,
  remotePath: RemotePath,
  options: TransferOptions,
): Promise<ArchiveResult> {
  const { followSymlinks = false } = options;
  const path = Buffer.from(localPath);
  const stats = await (followSymlinks ? stat(path) : lstat(path)).catch(asLocalError);
  if (stats.isFile()) return uploadFile(files, path, remotePath, options);
  if (!stats.isDirectory() && !stats.isSymbolicLink())
    throw new DSecError("file_error", `${path.toString()} is neither a file nor a directory`, {
      details: { path: path.toString(), errno: "EINVAL" },
    });
  const archive = new LocalArchive();
  const isThere = await isRemoteDirectory(files, remotePath, options.signal);
  const { parent, name } =
    isThere && stats.isDirectory() ? { parent: remotePath, name: Buffer.from(".") } : splitRemote(remotePath);
  const source = followSymlinks ? await realpath(path, { encoding: "buffer" }) : path;
  const result = await files.writeArchive(parent, archive.chunks(source, name), options).catch(asLocalError);
  const { skipped, skippedCount } = archive.totals;
  return {
    ...result,
    skipped: [...skipped, ...result.skipped],
    skippedCount: skippedCount + result.skippedCount,
  };
}

async function isRemoteDirectory(
  files: SandboxFiles,
  path: RemotePath,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  try {
    return (await files.stat(path, { signal })).type === "directory";
  } catch (error) {
    if (error instanceof DSecError && error.details?.["errno"] === "ENOENT") return false;
    throw error;
  }
}

async function uploadFile(
  files: SandboxFiles,
  path: Buffer,
  remotePath: RemotePath,
  { owners = false, signal, onProgress }: TransferOptions,
): Promise<ArchiveResult> {
  await using handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(asLocalError);
  const { mode, uid, gid, mtimeMs, size } = await handle.stat();
  await files.write(remotePath, fileChunks(handle, size, path), {
    mode: mode & (owners ? 0o7777 : 0o1777),
    ...(owners ? { uid, gid } : { uid: 0, gid: 0 }),
    mtimeMs,
    size,
    signal,
    onProgress,
  });
  return { entries: 1, bytes: size, skipped: [], skippedCount: 0 };
}

/** See SandboxFiles.download. */
export async function download(
  files: SandboxFiles,
  remotePath: RemotePath,
  localPath: string | Buffer,
  options: TransferOptions,
): Promise<ArchiveResult> {
  const { followSymlinks = false, signal, onProgress, owners = false } = options;
  const target = Buffer.from(typeof localPath === "string" ? resolve(localPath) : localPath);
  const { type } = await files.stat(remotePath, { followSymlinks, signal });
  if (type !== "file")
    return extractTo(target, async () => files.readArchive(remotePath, options), owners).catch(asLocalError);
  const content = async () => files.open(remotePath, { signal, onProgress });
  const place = await lstat(target).catch(() => undefined);
  const isReplaced = place === undefined || place.isFile() || place.isDirectory() || place.isSymbolicLink();
  const bytes = await (isReplaced ? replaceFile(target, content, owners) : writeInto(target, content)).catch(
    asLocalError,
  );
  return { entries: 1, bytes, skipped: [], skippedCount: 0 };
}

/** Opens what is to be copied, when there is a place for it. */
type OpenContent = () => ReturnType<SandboxFiles["open"]>;

/** A symlink gives way, too: an earlier copy may have brought it out of the sandbox. */
async function replaceFile(target: Buffer, content: OpenContent, owners: boolean): Promise<number> {
  let bytes = 0;
  await replaceBy(target, async (draft) => {
    await using handle = await open(draft, "wx", 0o600);
    const { info, chunks } = await content();
    bytes = await writeWithHoles(handle, chunks);
    await describe(handle.fd, info, owners);
  });
  return bytes;
}

/** Devices and pipes take the bytes: a file in the place of /dev/null would harm everybody. */
async function writeInto(target: Buffer, content: OpenContent): Promise<number> {
  let bytes = 0;
  const flags = constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NOCTTY;
  await using handle = await open(target, flags);
  const { chunks } = await content();
  for await (const chunk of chunks) {
    await handle.writeFile(chunk);
    bytes += chunk.length;
  }
  return bytes;
}

/** The first part of every name gives way to the target's. The archive is opened when there is a place for it. */
async function extractTo(
  target: Buffer,
  openArchive: () => ReturnType<SandboxFiles["readArchive"]>,
  owners: boolean,
): Promise<ArchiveResult> {
  const path = target.toString("latin1");
  // not through a symlink: an earlier copy may have brought it out of the sandbox
  const isThere = (await lstat(target).catch(() => undefined))?.isDirectory() === true;
  const top = isThere ? target : Buffer.from(dirname(path), "latin1");
  const name = Buffer.from(isThere ? "." : basename(path), "latin1");
  await using tree = new LocalTree(await realpath(top, { encoding: "buffer" }), owners);
  const skipped: { name: string; errno: string }[] = [];
  let skippedCount = 0;
  let first: Buffer | undefined;
  const { chunks, result } = await openArchive();
  for await (const entry of readTar(chunks)) {
    first ??= topOf(entry.name);
    const moved = { ...entry, name: movedBelow(entry.name, first, name) };
    const isLink = entry.type === "link" && entry.link !== undefined;
    const placed = isLink ? { ...moved, link: movedBelow(entry.link, first, name) } : moved;
    if (await tree.put(placed)) continue;
    skippedCount += 1;
    if (skipped.length < maxSkipped) skipped.push({ name: entry.name.toString(), errno: "ENOTSUP" });
  }
  await tree.end();
  const told = result();
  return {
    ...told,
    skipped: [...told.skipped, ...skipped],
    skippedCount: told.skippedCount + skippedCount,
  };
}

/** The first part of a name. */
function topOf(name: Buffer): Buffer {
  const slash = name.indexOf(0x2f);
  return slash === -1 ? name : name.subarray(0, slash);
}

/** @throws DSecError `file_error` for what is not below the archive's first entry */
function movedBelow(name: Buffer, first: Buffer, target: Buffer): Buffer {
  const top = topOf(name);
  if (top.length === 0 || !top.equals(first))
    throw new DSecError("file_error", `${name.toString()} is refused: it is not part of what was asked for`, {
      details: { entry: name.toString(), errno: "EINVAL" },
    });
  return Buffer.concat([target, name.subarray(top.length)]);
}

function splitRemote(path: RemotePath): { readonly parent: Buffer; readonly name: Buffer } {
  const bytes = Buffer.from(path);
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0x2f) end -= 1;
  const slash = bytes.lastIndexOf(0x2f, end - 1);
  const name = bytes.subarray(slash + 1, end);
  // the root itself
  if (name.length === 0) return { parent: Buffer.from("/"), name: Buffer.from(".") };
  return { parent: slash <= 0 ? Buffer.from("/") : bytes.subarray(0, slash), name };
}

/** Failures of this machine's file system, with their errno. */
function asLocalError(error: unknown): never {
  if (error instanceof DSecError || !(error instanceof Error) || !("code" in error)) throw error;
  const path = "path" in error ? String(error.path) : undefined;
  throw new DSecError("file_error", `on this machine: ${error.message}`, {
    cause: error,
    details: { errno: String(error.code), ...(path === undefined ? {} : { path }) },
  });
}
