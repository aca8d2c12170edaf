import type { Stats } from "node:fs";
import { lstat, realpath, stat } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import type { ArchiveResult, Sandbox, SandboxFiles, TransferOptions } from "../sdk/index.ts";
import { expectManyBuffers } from "./buffer-memory.ts";
import { type CopyOperand, destinationOf, type Found, meansDirectory, parseOperand } from "./cp-operand.ts";
import { exitCodeOfSignal, untilInterrupted } from "./interrupt.ts";
import { isTerminal, note, write } from "./io.ts";
import type { Io } from "./io.ts";
import { flag } from "./option.ts";
import { done } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { ProgressLine } from "./progress.ts";
import { defineVerb } from "./verb.ts";

export const cp = defineVerb({
  description:
    "Either SRC or DST is REF:PATH. As docker cp: a directory is copied into a directory that is there, or becomes DST where\n" +
    "nothing is; SRC/. means what is in it; for a file DST/ must be there. With - for SRC a tar archive from stdin is taken apart in the\n" +
    "directory DST, with - for DST one is written to stdout. Modes, times, links and holes are kept; devices, FIFOs and\n" +
    "sockets are left out. A file is in its place, checked by size and hash, or not at all.",
  operands: "<src> <dst>",
  examples: [
    "dsec cp ./src web-1:/work",
    "dsec cp web-1:/var/log/. ./logs",
    "tar -c . | dsec cp - web-1:/work",
    "dsec cp web-1:/etc - | tar -t",
  ],
  options: {
    archive: flag("-a, --archive", "keep owners and set-id bits; otherwise root, or you, own what is copied"),
    followLink: flag("-L, --follow-link", "copy what SRC means where it is a symlink"),
    quiet: flag("-q, --quiet", "no progress, no summary"),
  },
  run: async ({ io, client }, { archive, followLink, quiet }, [src = "", dst = ""]) => {
    const source = parseOperand(src);
    const destination = parseOperand(dst);
    const ref = theOnlySandbox(source, destination);
    if (destination.type === "stream" && isTerminal(io.stdout))
      throw new DSecError("invalid_argument", "stdout is a terminal: an archive is not for reading");
    expectManyBuffers();
    return untilInterrupted(async (signal) => {
      const sandbox = await (await client()).get(ref);
      const line = new ProgressLine(io, !quiet);
      const options = { owners: archive, followSymlinks: followLink, signal, onProgress: line.update };
      let outcome: Copied;
      try {
        outcome = await copy({ io, sandbox, source, destination, options });
      } finally {
        line.clear();
      }
      if (outcome === "reader gone") return { type: "exit", code: exitCodeOfSignal("SIGPIPE") };
      return report(io, quiet ? undefined : line, outcome);
    });
  },
});

interface Copy {
  readonly io: Io;
  readonly sandbox: Sandbox;
  readonly source: CopyOperand;
  readonly destination: CopyOperand;
  readonly options: TransferOptions;
}

type Copied = ArchiveResult | "reader gone";

async function copy({ io, sandbox, source, destination, options }: Copy): Promise<Copied> {
  const { files } = sandbox;
  if (destination.type === "remote") {
    if (source.type === "stream") return files.writeArchive(destination.path, io.stdin, options);
    return upload(files, source, destination.path, options);
  }
  if (source.type !== "remote") throw new DSecError("internal", "neither side is in a sandbox");
  if (destination.type === "stream") return toStdout(io, files, source.path, options);
  return download(files, source.path, destination, options);
}

async function upload(
  files: SandboxFiles,
  source: CopyOperand,
  destination: string,
  given: TransferOptions,
): Promise<ArchiveResult> {
  const path = source.type === "local" ? source.path : "";
  const options = { ...given, followSymlinks: given.followSymlinks === true || meansDirectory(path) };
  const stats = await localStats(path, options.followSymlinks);
  if (stats === undefined) throw missing(path);
  const isDirectory = stats.isDirectory();
  if (!isDirectory && meansDirectory(path)) throw noDirectory(path);
  const found = await remoteFound(files, destination, options);
  const target = destinationOf({ path, isDirectory, isLocal: true }, { path: destination, found });
  return files.upload(path, target, options);
}

async function download(
  files: SandboxFiles,
  path: string,
  destination: CopyOperand,
  given: TransferOptions,
): Promise<ArchiveResult> {
  const options = { ...given, followSymlinks: given.followSymlinks === true || meansDirectory(path) };
  const { type } = await files.stat(path, options);
  const isDirectory = type === "directory";
  if (!isDirectory && meansDirectory(path)) throw noDirectory(path);
  const local = destination.type === "local" ? destination.path : "";
  const found = foundOf(await localStats(local, true));
  // a symlink that was named is meant; one in the place of a copy is not
  const place = found === "directory" ? await realpath(local) : local;
  return files.download(
    path,
    destinationOf({ path, isDirectory, isLocal: false }, { path: place, found }),
    options,
  );
}

async function toStdout(
  io: Io,
  files: SandboxFiles,
  path: string,
  options: TransferOptions,
): Promise<Copied> {
  const { chunks, result } = await files.readArchive(path, {
    ...options,
    followSymlinks: options.followSymlinks === true || meansDirectory(path),
  });
  for await (const chunk of chunks) {
    if (io.readerGone.aborted) return "reader gone";
    await write(io.stdout, chunk);
  }
  return result();
}

function report(io: Io, line: ProgressLine | undefined, result: ArchiveResult): Outcome {
  for (const { name, errno } of result.skipped) note(io, `dsec: left out: ${name} (${errno})`);
  const more = result.skippedCount - result.skipped.length;
  if (more > 0) note(io, `dsec: left out: ${more} more`);
  if (line !== undefined) note(io, `copied ${line.summary()}`);
  return done;
}

/** @throws DSecError `invalid_argument` unless exactly one side is in a sandbox */
function theOnlySandbox(source: CopyOperand, destination: CopyOperand): string {
  const [ref, other] = [source, destination].flatMap((side) => (side.type === "remote" ? [side.ref] : []));
  if (ref === undefined)
    throw new DSecError("invalid_argument", "neither SRC nor DST is in a sandbox: give REF:PATH for one");
  if (other !== undefined)
    throw new DSecError(
      "invalid_argument",
      "SRC and DST are both in sandboxes: copy by `dsec cp REF:PATH - | dsec cp - REF:PATH`",
    );
  return ref;
}

async function remoteFound(files: SandboxFiles, path: string, { signal }: TransferOptions): Promise<Found> {
  try {
    return (await files.stat(path, { signal })).type === "directory" ? "directory" : "file";
  } catch (error) {
    if (error instanceof DSecError && error.details?.["errno"] === "ENOENT") return "nothing";
    throw error;
  }
}

async function localStats(path: string, follow: boolean): Promise<Stats | undefined> {
  try {
    return await (follow ? stat(path) : lstat(path));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw new DSecError("file_error", `${path} cannot be looked at`, { cause: error });
  }
}

function foundOf(stats: Stats | undefined): Found {
  if (stats === undefined) return "nothing";
  return stats.isDirectory() ? "directory" : "file";
}

function missing(path: string): DSecError {
  return new DSecError("file_error", `${path}: there is no such file or directory here`, {
    details: { path, errno: "ENOENT" },
  });
}

function noDirectory(path: string): DSecError {
  return new DSecError("file_error", `${path}: it is no directory`, { details: { path, errno: "ENOTDIR" } });
}
