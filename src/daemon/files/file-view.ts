import { isUtf8 } from "node:buffer";
import type { GuestArchiveResult, GuestFileInfo, GuestPath } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ArchiveResult, FileInfo } from "../../protocol/file.ts";

interface GivenPath {
  readonly path?: string | undefined;
  readonly pathBytes?: string | undefined;
}

/** Text, or bytes where that is what was given. @throws DSecError `invalid_argument` */
export function guestPath({ path, pathBytes = "" }: GivenPath): GuestPath {
  if (path !== undefined) return path;
  const bytes = Buffer.from(pathBytes, "base64");
  if (bytes[0] === 0x2f && !bytes.includes(0)) return bytes;
  throw new DSecError("invalid_argument", "pathBytes: must be an absolute path");
}

export function parseMode(octal: string | undefined): { readonly mode?: number } {
  return octal === undefined ? {} : { mode: Number.parseInt(octal, 8) };
}

/** What a file is called in an archive of it: the last part of its path, or `.` where that has no name of its own. */
export function archiveName(path: GuestPath): Buffer {
  const bytes = Buffer.from(path);
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0x2f) end -= 1;
  const name = bytes.subarray(bytes.lastIndexOf(0x2f, end - 1) + 1, end);
  const text = name.toString("latin1");
  return text === "" || text === ".." ? Buffer.from(".") : name;
}

export function fileInfo({ name, linkTarget, ...info }: GuestFileInfo): FileInfo {
  return {
    name: name.toString(),
    ...(isUtf8(name) ? {} : { nameBytes: name.toString("base64") }),
    type: info.type,
    mode: info.mode,
    uid: info.uid,
    gid: info.gid,
    size: info.size,
    mtimeMs: info.mtimeMs,
    ...(linkTarget === undefined ? {} : { linkTarget: linkTarget.toString() }),
    ...(linkTarget === undefined || isUtf8(linkTarget)
      ? {}
      : { linkTargetBytes: linkTarget.toString("base64") }),
  };
}

/** @param maxChars of the names of what was left out, together */
export function archiveResult(result: GuestArchiveResult, maxChars: number): ArchiveResult {
  let left = maxChars;
  const skipped = result.skipped
    .map(({ path, errno }) => ({ name: path.toString(), errno }))
    .filter(({ name }) => (left -= name.length) >= 0);
  return { entries: result.entries, bytes: result.bytes, skipped, skippedCount: result.skippedCount };
}
