import { DSecError } from "../protocol/errors.ts";
import { Field, FieldWriter } from "./fields.ts";
import { FileChannel, type FileChannelOptions } from "./file-channel.ts";
import { FrameType } from "./frame.ts";
import type {
  ContentSink,
  GuestArchiveResult,
  GuestContentOptions,
  GuestExtractOptions,
  GuestFileInfo,
  GuestFiles,
  GuestPath,
  GuestReadOptions,
  GuestWriteOptions,
} from "./guest.ts";
import type { Link } from "./link.ts";

const Operation = {
  read: 1,
  write: 2,
  stat: 3,
  list: 4,
  mkdir: 5,
  remove: 6,
  rename: 7,
  archive: 8,
  extract: 9,
} as const;
const RECURSIVE = 1;
const NO_FOLLOW = 2;
const OWNERS = 4;
const HASHED = 8;
const SUMMED = 16;
const DIRECT = 32;
/** Bytes of a file or an archive that may be under way; nothing inside keeps them meanwhile. */
const READ_WINDOW = 1_048_576;
/** Bytes of content on their way past the page cache: the disk gets a quarter at a time, and is a third faster with 1 MiB than with 256 KiB. */
const DIRECT_WINDOW = 4_194_304;
const PATH_MAX = 4095;
const SLASH = 0x2f;

function shownPath(path: GuestPath): string {
  return typeof path === "string" ? path : Buffer.from(path).toString("utf8");
}

function pathBytes(path: GuestPath): Buffer {
  const bytes = Buffer.from(path);
  if (bytes[0] !== SLASH || bytes.includes(0) || bytes.length > PATH_MAX) {
    const details = { path: shownPath(path) };
    throw new DSecError("invalid_argument", `${JSON.stringify(details.path)} is not an absolute path`, {
      details,
    });
  }
  return bytes;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new DSecError("internal", String(error));
}

function about(verb: string, path: GuestPath): FileChannelOptions {
  const shown = shownPath(path);
  return { subject: { sentence: `cannot ${verb} ${shown}`, details: { path: shown } } };
}

/** File operations over a connection to the agent. */
export class AgentFiles implements GuestFiles {
  readonly #link: Link;

  constructor(link: Link) {
    this.#link = link;
  }

  async read(
    path: GuestPath,
    range: { offset?: number; length?: number },
    sink: ContentSink,
    options: GuestReadOptions = {},
  ): Promise<GuestFileInfo> {
    const fields = this.#request("read", path).u32(Field.window, READ_WINDOW);
    if (range.offset !== undefined) fields.u64(Field.offset, range.offset);
    if (range.length !== undefined) fields.u64(Field.length, range.length);
    return this.#one(fields, { ...about("read", path), ...options, onContent: sink });
  }

  async write(
    path: GuestPath,
    content: AsyncIterable<Uint8Array>,
    options: GuestWriteOptions,
  ): Promise<void> {
    const fields = this.#request("write", path);
    if (options.mode !== undefined) fields.u32(Field.mode, options.mode);
    if (options.uid !== undefined) fields.u32(Field.uid, options.uid);
    if (options.gid !== undefined) fields.u32(Field.gid, options.gid);
    if (options.size !== undefined) fields.u64(Field.length, options.size);
    if (options.mtimeMs !== undefined) fields.i64(Field.mtime, BigInt(Math.round(options.mtimeMs * 1e6)));
    const direct = options.direct === true;
    if (direct) fields.u32(Field.window, DIRECT_WINDOW);
    const channel = { ...about("write", path), ...(direct && { contentWindow: DIRECT_WINDOW }) };
    await this.#send(fields, channel, content, options, direct ? DIRECT : 0);
  }

  async archive(
    path: GuestPath,
    options: GuestReadOptions & { readonly name: Uint8Array; readonly followSymlink: boolean },
    sink: ContentSink,
  ): Promise<GuestArchiveResult> {
    const { name, followSymlink, begun, signal } = options;
    const fields = this.#request("archive", path)
      .u32(Field.window, READ_WINDOW)
      .bytes(Field.archiveName, name);
    if (!followSymlink) fields.u32(Field.fileFlags, NO_FOLLOW);
    const channel = this.#start(fields, { ...about("archive", path), begun, signal, onContent: sink });
    await channel.done;
    return channel.results.archive;
  }

  async extract(
    path: GuestPath,
    content: AsyncIterable<Uint8Array>,
    options: GuestExtractOptions,
  ): Promise<GuestArchiveResult> {
    const fields = this.#request("extract", path);
    if (options.uid !== undefined) fields.u32(Field.uid, options.uid);
    if (options.gid !== undefined) fields.u32(Field.gid, options.gid);
    const flags = options.owners ? OWNERS : 0;
    const channel = await this.#send(fields, about("extract into", path), content, options, flags);
    return channel.results.archive;
  }

  async stat(path: GuestPath, options: { followSymlink: boolean }): Promise<GuestFileInfo> {
    const fields = this.#request("stat", path);
    if (!options.followSymlink) fields.u32(Field.fileFlags, NO_FOLLOW);
    return this.#one(fields, about("stat", path));
  }

  async list(path: GuestPath): Promise<GuestFileInfo[]> {
    const channel = this.#start(this.#request("list", path), about("list", path));
    await channel.done;
    return channel.results.records;
  }

  async mkdir(path: GuestPath, options: { parents: boolean; mode?: number }): Promise<void> {
    const fields = this.#request("mkdir", path);
    if (options.mode !== undefined) fields.u32(Field.mode, options.mode);
    if (options.parents) fields.u32(Field.fileFlags, RECURSIVE);
    await this.#start(fields, about("make the directory", path)).done;
  }

  async remove(path: GuestPath, options: { recursive: boolean }): Promise<void> {
    const fields = this.#request("remove", path);
    if (options.recursive) fields.u32(Field.fileFlags, RECURSIVE);
    await this.#start(fields, about("remove", path)).done;
  }

  async rename(from: GuestPath, to: GuestPath): Promise<void> {
    const fields = this.#request("rename", from).bytes(Field.secondPath, pathBytes(to));
    await this.#start(fields, about("rename", from)).done;
  }

  #request(operation: keyof typeof Operation, path: GuestPath): FieldWriter {
    return new FieldWriter().u8(Field.operation, Operation[operation]).bytes(Field.path, pathBytes(path));
  }

  /** Sends the content; resolves when the agent has put it in its place. */
  async #send(
    fields: FieldWriter,
    subject: FileChannelOptions,
    content: AsyncIterable<Uint8Array>,
    { sha256, checkAtEnd, signal }: GuestContentOptions,
    flags: number,
  ): Promise<FileChannel> {
    if (sha256 !== undefined) fields.bytes(Field.sha256, sha256);
    const checkFlag = checkAtEnd === undefined ? 0 : checkAtEnd.kind === "sha256" ? HASHED : SUMMED;
    const allFlags = flags | checkFlag;
    if (allFlags !== 0) fields.u32(Field.fileFlags, allFlags);
    const channel = this.#start(fields, { ...subject, signal });
    await channel.started;
    const feed = async (): Promise<void> => {
      for await (const chunk of content) {
        await channel.content.write(chunk);
        // The agent refused meanwhile: the rest need not be produced.
        if (channel.isOver) return;
      }
      channel.content.end(checkAtEnd?.value());
    };
    feed().catch((error: unknown) => channel.fail(asError(error)));
    await channel.done;
    return channel;
  }

  #start(fields: FieldWriter, options: FileChannelOptions): FileChannel {
    options.signal?.throwIfAborted();
    const number = this.#link.allocate();
    const channel = new FileChannel(this.#link, number, options);
    this.#link.attach(number, channel);
    this.#link.send(fields.toFrame(FrameType.file, number));
    return channel;
  }

  async #one(fields: FieldWriter, options: FileChannelOptions): Promise<GuestFileInfo> {
    const channel = this.#start(fields, options);
    await channel.done;
    const [info] = channel.results.records;
    if (!info)
      throw new DSecError("protocol_error", `${options.subject.sentence}: the agent did not describe it`);
    return info;
  }
}
