import { DSecError } from "../protocol/errors.ts";
import { Field, FieldWriter } from "./fields.ts";
import { FileChannel, type FileChannelOptions } from "./file-channel.ts";
import { FrameType } from "./frame.ts";
import type { GuestFileInfo, GuestFiles, GuestPath, GuestWriteOptions } from "./guest.ts";
import type { Link } from "./link.ts";

const Operation = { read: 1, write: 2, stat: 3, list: 4, mkdir: 5, remove: 6, rename: 7 } as const;
const RECURSIVE = 1;
const NO_FOLLOW = 2;
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

function about(verb: string, path: GuestPath): FileChannelOptions {
  const shown = shownPath(path);
  return { subject: { sentence: `cannot ${verb} ${shown}`, details: { path: shown } } };
}

/** File operations over a connection to the agent. */
export class AgentFiles implements GuestFiles {
  readonly #link: Link;
  readonly #window: number;

  constructor(link: Link, window: number) {
    this.#link = link;
    this.#window = window;
  }

  async read(
    path: GuestPath,
    range: { offset?: number; length?: number },
    sink: (chunk: Buffer) => void | Promise<void>,
  ): Promise<GuestFileInfo> {
    const fields = this.#request("read", path).u32(Field.window, this.#window);
    if (range.offset !== undefined) fields.u64(Field.offset, range.offset);
    if (range.length !== undefined) fields.u64(Field.length, range.length);
    return this.#one(fields, { ...about("read", path), onContent: sink });
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
    if (options.sha256 !== undefined) fields.bytes(Field.sha256, options.sha256);
    const channel = this.#start(fields, about("write", path));
    await channel.started;
    let refused = false;
    channel.done.catch(() => {
      refused = true;
    });
    try {
      for await (const chunk of content) {
        await channel.content.write(chunk);
        // The agent refused meanwhile: the rest need not be produced.
        if (refused) break;
      }
      channel.content.end();
    } catch (error) {
      channel.fail(error instanceof Error ? error : new DSecError("internal", String(error)));
    }
    await channel.done;
  }

  async stat(path: GuestPath, options: { followSymlink: boolean }): Promise<GuestFileInfo> {
    const fields = this.#request("stat", path);
    if (!options.followSymlink) fields.u32(Field.fileFlags, NO_FOLLOW);
    return this.#one(fields, about("stat", path));
  }

  async list(path: GuestPath): Promise<GuestFileInfo[]> {
    const channel = this.#start(this.#request("list", path), about("list", path));
    await channel.done;
    return channel.records;
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

  #start(fields: FieldWriter, options: FileChannelOptions): FileChannel {
    const number = this.#link.allocate();
    const channel = new FileChannel(this.#link, number, options);
    this.#link.attach(number, channel);
    this.#link.send(fields.toFrame(FrameType.file, number));
    return channel;
  }

  async #one(fields: FieldWriter, options: FileChannelOptions): Promise<GuestFileInfo> {
    const channel = this.#start(fields, options);
    await channel.done;
    const [info] = channel.records;
    if (!info)
      throw new DSecError("protocol_error", `${options.subject.sentence}: the agent did not describe it`);
    return info;
  }
}
