import { Readable } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { fileHeaders } from "../protocol/file-headers.ts";
import type { ArchiveResult, FileInfo, FileList, FileWritten } from "../protocol/file.ts";
import { type ContentAnswer, downloadContent, uploadContent } from "../wire/client/content.ts";
import type { HttpClient, QueryValue } from "../wire/client/http-client.ts";
import type { TransferOptions, TransferProgress } from "./file-transfer.ts";

/** A path inside a sandbox. Bytes where it is not UTF-8, as {@link FileEntry.nameBytes} gives them. */
export type RemotePath = string | Uint8Array;

export interface FileCallOptions {
  readonly signal?: AbortSignal | undefined;
}

/** What is known of a file. */
export interface FileEntry extends Omit<FileInfo, "nameBytes" | "linkTargetBytes"> {
  readonly nameBytes: Buffer;
  readonly linkTargetBytes: Buffer | undefined;
}

export interface ReadOptions extends FileCallOptions {
  /** Bytes from the beginning. */
  readonly offset?: number;
  readonly length?: number;
  /** Receives how far it got. */
  readonly onProgress?: ((progress: TransferProgress) => void) | undefined;
}

export interface WriteOptions extends FileCallOptions {
  /** Permission bits, e.g. 0o755. Without it: those of the file that is replaced, else 0o644. */
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  /** Milliseconds since the epoch. */
  readonly mtimeMs?: number;
  /** Make the directories that lead there. */
  readonly parents?: boolean;
  /** Bytes that a stream must have. */
  readonly size?: number;
  readonly onProgress?: ((progress: TransferProgress) => void) | undefined;
}

/** Bytes that {@link SandboxFiles.read} collects unless told otherwise: 64 MiB. */
const defaultMaxBytes = 67_108_864;

/**
 * The files of a sandbox. Paths are absolute and are resolved inside it. A failed operation rejects with a {@link DSecError} of code
 * `file_error`, whose details have the `errno`.
 */
export class SandboxFiles {
  readonly #http: HttpClient;
  readonly #params: { readonly ref: string };

  constructor(http: HttpClient, ref: string) {
    this.#http = http;
    this.#params = { ref };
  }

  /** The content of a file. @param options.maxBytes rejects with `output_too_large` beyond it; default 64 MiB */
  async read(path: RemotePath, options: ReadOptions & { readonly maxBytes?: number } = {}): Promise<Buffer> {
    const { maxBytes = defaultMaxBytes } = options;
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of (await this.#open(path, options)).chunks) {
      size += chunk.length;
      if (size > maxBytes)
        throw new DSecError("output_too_large", `${shown(path)} has more than ${maxBytes} bytes`, {
          details: { path: shown(path), limit: maxBytes },
        });
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  }

  /** The content of a file, no faster than it is read. It ends with an error unless all of it has come. */
  async stream(path: RemotePath, options: ReadOptions = {}): Promise<Readable> {
    const { chunks } = await this.#open(path, options);
    return Readable.from(chunks, { objectMode: false });
  }

  /** Writes a file as a whole: resolves when size and hash were checked inside and it is in its place; else nothing has changed. */
  async write(
    path: RemotePath,
    data: string | Uint8Array | AsyncIterable<Uint8Array>,
    options: WriteOptions = {},
  ): Promise<void> {
    const { mode, uid, gid, mtimeMs, parents, size, signal, onProgress } = options;
    const query = { ...pathQuery(path), mode: mode?.toString(8), uid, gid, mtimeMs, parents };
    const call = { params: this.#params, signal };
    if (typeof data === "string" || data instanceof Uint8Array) {
      const content = typeof data === "string" ? Buffer.from(data) : data;
      const { createHash } = process.getBuiltinModule("node:crypto");
      const sha256 = createHash("sha256").update(content).digest("hex");
      const whole = { ...query, size: content.length, sha256 };
      await uploadContent<FileWritten>(this.#http, "writeFile", { ...call, query: whole, content });
      onProgress?.({ bytes: content.length, totalBytes: content.length });
      return;
    }
    const sum = new RunningSum();
    const written = await uploadContent<FileWritten>(this.#http, "writeFile", {
      ...call,
      query: { ...query, size },
      content: observed(data, sum, (bytes) => onProgress?.({ bytes, totalBytes: size })),
      crc32: () => sum.hex,
    });
    if (size !== undefined && written.size !== size)
      throw new DSecError("protocol_error", `${written.size} of ${size} bytes arrived`, { ambiguous: true });
  }

  /** @param options.followSymlinks whether a symlink at the end is followed; default true */
  async stat(
    path: RemotePath,
    options: FileCallOptions & { readonly followSymlinks?: boolean } = {},
  ): Promise<FileEntry> {
    const query = { ...pathQuery(path), follow: options.followSymlinks };
    const call = { params: this.#params, query, signal: options.signal };
    return entryOf(await this.#http.json<FileInfo>("statFile", call));
  }

  /** The entries of a directory, in no particular order. */
  async list(path: RemotePath, options: FileCallOptions = {}): Promise<FileEntry[]> {
    const call = { params: this.#params, query: pathQuery(path), ...options };
    return (await this.#http.json<FileList>("listFiles", call)).items.map(entryOf);
  }

  /** @param options.parents also what leads there; no error then where it exists */
  async mkdir(
    path: RemotePath,
    options: FileCallOptions & { readonly parents?: boolean; readonly mode?: number } = {},
  ): Promise<void> {
    const { parents, mode, signal } = options;
    await this.#change("makeDirectory", { ...pathQuery(path), parents, mode: mode?.toString(8) }, signal);
  }

  async rename(from: RemotePath, to: RemotePath, options: FileCallOptions = {}): Promise<void> {
    const { path, pathBytes } = pathQuery(to);
    await this.#change("renameFile", { ...pathQuery(from), to: path, toBytes: pathBytes }, options.signal);
  }

  /** @param options.recursive also a directory with all that is in it */
  async remove(
    path: RemotePath,
    options: FileCallOptions & { readonly recursive?: boolean } = {},
  ): Promise<void> {
    const { recursive, signal } = options;
    await this.#change("removeFile", { ...pathQuery(path), recursive }, signal);
  }

  /**
   * A file or a tree as a tar archive, in which it goes by the last part of its path.
   * @returns the archive, and what became of it once it has been read to its end
   */
  async readArchive(
    path: RemotePath,
    options: TransferOptions = {},
  ): Promise<{
    readonly chunks: AsyncGenerator<Buffer, void, undefined>;
    readonly result: () => ArchiveResult;
  }> {
    const { followSymlinks, signal, onProgress } = options;
    const query = { ...pathQuery(path), follow: followSymlinks };
    const answer = await downloadContent(this.#http, "readArchive", { params: this.#params, query, signal });
    const told = (): ArchiveResult => archiveResultOf(answer);
    async function* chunks(): AsyncGenerator<Buffer, void, undefined> {
      yield* observed(answer.chunks, undefined, (bytes) => onProgress?.({ bytes }));
      told();
    }
    return { chunks: chunks(), result: told };
  }

  /**
   * Takes a tar archive apart in a directory. Each file in it is whole or not there.
   * @param options.owners whether the archive says who owns what; otherwise root does
   */
  async writeArchive(
    path: RemotePath,
    content: AsyncIterable<Uint8Array>,
    options: TransferOptions = {},
  ): Promise<ArchiveResult> {
    const { owners, signal, onProgress } = options;
    const sum = new RunningSum();
    return uploadContent<ArchiveResult>(this.#http, "writeArchive", {
      params: this.#params,
      query: { ...pathQuery(path), owners },
      content: observed(content, sum, (bytes) => onProgress?.({ bytes })),
      crc32: () => sum.hex,
      signal,
    });
  }

  /**
   * Copies a file or a directory from this machine to `remotePath` itself, joining directories that are there already. Symlinks in it
   * stay symlinks; devices, FIFOs and sockets are left out.
   */
  async upload(
    localPath: string | Buffer,
    remotePath: RemotePath,
    options: TransferOptions = {},
  ): Promise<ArchiveResult> {
    const { upload } = await import("./file-transfer.ts");
    return upload(this, localPath, remotePath, options);
  }

  /** The other way round. Nothing is written outside `localPath`, whatever the sandbox sends. */
  async download(
    remotePath: RemotePath,
    localPath: string | Buffer,
    options: TransferOptions = {},
  ): Promise<ArchiveResult> {
    const { download } = await import("./file-transfer.ts");
    return download(this, remotePath, localPath, options);
  }

  /** The content of a file together with its description. */
  async open(
    path: RemotePath,
    options: ReadOptions = {},
  ): Promise<{ readonly info: FileEntry; readonly chunks: AsyncGenerator<Buffer, void, undefined> }> {
    const { headers, chunks } = await this.#open(path, options);
    return { info: entryOf(JSON.parse(String(headers[fileHeaders.info])) as FileInfo), chunks };
  }

  async #open(path: RemotePath, options: ReadOptions): Promise<ContentAnswer> {
    const { offset, length, signal, onProgress } = options;
    const query = { ...pathQuery(path), offset, length };
    const answer = await downloadContent(this.#http, "readFile", { params: this.#params, query, signal });
    if (onProgress === undefined) return answer;
    const total = answer.headers["content-length"];
    const totalBytes = total === undefined ? undefined : Number(total);
    return {
      ...answer,
      chunks: observed(answer.chunks, undefined, (bytes) => onProgress({ bytes, totalBytes })),
    };
  }

  async #change(
    route: "makeDirectory" | "renameFile" | "removeFile",
    body: Readonly<Record<string, unknown>>,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    await this.#http.json(route, { params: this.#params, body, signal });
  }
}

/** CRC-32 of a stream: it finds what may go wrong on the way at a fraction of what a cryptographic hash costs. */
class RunningSum {
  // not by import: commands that copy nothing need not load it
  readonly #crc32 = process.getBuiltinModule("node:zlib").crc32;
  #sum = 0;

  add(chunk: Uint8Array): void {
    this.#sum = this.#crc32(chunk, this.#sum);
  }

  get hex(): string {
    return this.#sum.toString(16).padStart(8, "0");
  }
}

/** Passes chunks on, summed up and counted. */
async function* observed<T extends Uint8Array>(
  chunks: AsyncIterable<T>,
  sum: RunningSum | undefined,
  counted: (bytes: number) => void,
): AsyncGenerator<T, void, undefined> {
  let bytes = 0;
  for await (const chunk of chunks) {
    sum?.add(chunk);
    bytes += chunk.length;
    yield chunk;
    counted(bytes);
  }
}

function pathQuery(
  path: RemotePath,
): { readonly path?: string; readonly pathBytes?: string } & Record<string, QueryValue> {
  return typeof path === "string" ? { path } : { pathBytes: Buffer.from(path).toString("base64") };
}

/** For messages. */
function shown(path: RemotePath): string {
  return typeof path === "string" ? path : Buffer.from(path).toString();
}

function entryOf({ nameBytes, linkTargetBytes, ...info }: FileInfo): FileEntry {
  const { linkTarget } = info;
  return {
    ...info,
    nameBytes: nameBytes === undefined ? Buffer.from(info.name) : Buffer.from(nameBytes, "base64"),
    linkTargetBytes:
      linkTargetBytes === undefined
        ? linkTarget === undefined
          ? undefined
          : Buffer.from(linkTarget)
        : Buffer.from(linkTargetBytes, "base64"),
  };
}

/** An archive without its trailer was cut off, whatever its end looks like. */
function archiveResultOf({ trailers }: ContentAnswer): ArchiveResult {
  const told = trailers()[fileHeaders.archive];
  if (told === undefined) throw new DSecError("connection_lost", "the archive ended before its end");
  return JSON.parse(told) as ArchiveResult;
}
