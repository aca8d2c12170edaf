import { DSecError } from "./errors.ts";
import { TarBytes } from "./tar-bytes.ts";
import {
  tarBlock,
  tarChecksum,
  tarField,
  tarFieldNumber,
  type TarMember,
  tarPadding,
  tarTypes,
} from "./tar-member.ts";
import { readTarRecords } from "./tar-records.ts";

/** A member with its content, which is to be read before the next member is asked for; what is left is skipped. */
export interface TarEntry extends TarMember {
  readonly content: AsyncIterable<Buffer>;
}

interface Extended {
  name?: Buffer;
  link?: Buffer;
  size?: number;
  uid?: number;
  gid?: number;
  mtimeMs?: number;
}

/** Bytes of an extended header. */
const maxExtended = 1_048_576;
const typeOf = new Map(tarTypes);

/**
 * The members of an archive. GNU's long names are understood, too; its formats for files with holes are not.
 * @throws DSecError `protocol_error` for what is no archive, or ends before its end
 */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry, void, undefined> {
  const bytes = new TarBytes(source, cutOff);
  let extended: Extended = {};
  for (;;) {
    const block = await bytes.take(tarBlock);
    if (block.every((byte) => byte === 0)) break;
    if (number(block, tarField.checksum) !== tarChecksum(block)) throw broken("a checksum is wrong");
    const flag = String.fromCharCode(block[tarField.type[0]] ?? 0);
    const size = number(block, tarField.size);
    if (flag === "x" || flag === "g" || flag === "L" || flag === "K") {
      if (size > maxExtended) throw broken("an extended header is too long");
      const data = Buffer.from(await bytes.take(size));
      await bytes.skip(tarPadding(size));
      if (flag === "x") extended = { ...extended, ...readRecords(data) };
      else if (flag !== "g") extended[flag === "L" ? "name" : "link"] = data.subarray(0, endOfText(data));
      continue;
    }
    const member = memberOf(block, flag, extended);
    extended = {};
    const content = new Content(bytes, member.size);
    yield { ...member, content };
    await content.skipRest();
    await bytes.skip(tarPadding(member.size));
  }
  // what follows belongs to the stream, whose end says that it was whole
  await bytes.drain();
}

function memberOf(block: Buffer, flag: string, extended: Extended): TarMember {
  const isPosix = text(block, tarField.magic).toString("latin1") === "ustar";
  const prefix =
    isPosix && block[tarField.magic[0] + 5] === 0 ? text(block, tarField.prefix) : Buffer.alloc(0);
  const plain = text(block, tarField.name);
  const name = prefix.length > 0 ? Buffer.concat([prefix, Buffer.from("/"), plain]) : plain;
  const member: TarMember = {
    type: "file",
    name: Buffer.from(name),
    mode: number(block, tarField.mode) & 0o7777,
    uid: number(block, tarField.uid),
    gid: number(block, tarField.gid),
    size: number(block, tarField.size),
    mtimeMs: time(tarFieldNumber(block, tarField.mtime)),
    link: Buffer.from(text(block, tarField.link)),
    ...extended,
  };
  const known = typeOf.get(flag) ?? (flag === "\0" || flag === "7" ? "file" : undefined);
  if (known === undefined) throw broken(`${member.name.toString()} is of an unknown type`);
  const isDirectory = known === "file" && member.name.at(-1) === 0x2f;
  return { ...member, type: isDirectory ? "directory" : known };
}

function readRecords(data: Buffer): Extended {
  const extended: Extended = {};
  for (const [key, value] of readTarRecords(data, () => broken("an extended header is malformed"))) {
    if (value.includes(0)) throw broken("an extended header has a zero in it");
    apply(extended, key, value);
  }
  return extended;
}

function apply(extended: Extended, key: string, value: Buffer): void {
  if (key === "path") extended.name = value;
  else if (key === "linkpath") extended.link = value;
  else if (key === "mtime") extended.mtimeMs = time(Number(value.toString()));
  else if (key === "size" || key === "uid" || key === "gid")
    extended[key] = inRange(Number(value.toString()));
  else if (key.startsWith("GNU.sparse.")) throw broken("it has a file in GNU's format for holes");
}

function inRange(value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw broken("a number is out of range");
  return value;
}

/** Of seconds, which may be before 1970. */
function time(seconds: number): number {
  if (!Number.isFinite(seconds)) throw broken("a time is malformed");
  return seconds * 1000;
}

function number(block: Buffer, field: readonly [number, number]): number {
  const value = tarFieldNumber(block, field);
  if (Number.isNaN(value)) throw broken("a number is malformed");
  return inRange(value);
}

function endOfText(bytes: Buffer): number {
  const zero = bytes.indexOf(0);
  return zero === -1 ? bytes.length : zero;
}

function text(block: Buffer, [at, length]: readonly [number, number]): Buffer {
  const field = block.subarray(at, at + length);
  return field.subarray(0, endOfText(field));
}

function broken(reason: string): DSecError {
  return new DSecError("protocol_error", `this is no tar archive that can be read: ${reason}`);
}

function cutOff(): DSecError {
  return broken("it ends in the middle");
}

/** The content of one member, once. */
class Content implements AsyncIterable<Buffer> {
  readonly #bytes: TarBytes;
  #left: number;

  constructor(bytes: TarBytes, size: number) {
    this.#bytes = bytes;
    this.#left = size;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    while (this.#left > 0) {
      const part = await this.#bytes.some(this.#left);
      if (part.length === 0) throw cutOff();
      this.#left -= part.length;
      yield part;
    }
  }

  async skipRest(): Promise<void> {
    await this.#bytes.skip(this.#left);
    this.#left = 0;
  }
}
