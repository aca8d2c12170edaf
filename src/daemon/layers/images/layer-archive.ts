import type { DSecError } from "../../../protocol/errors.ts";
import { TarBytes } from "../../../protocol/tar-bytes.ts";
import { tarBlock, tarPadding, type TarType } from "../../../protocol/tar-member.ts";
import { readTarRecords } from "../../../protocol/tar-records.ts";
import { imageInvalid } from "./image-error.ts";
import { readSparseMap, type SparseMap, takeSparseMap } from "./sparse-map.ts";
import { readTarHeader, tarCount, type TarHeader, type TarRecords, tarTypeOf } from "./tar-header.ts";

/** A member of a layer's archive. Names are bytes, one character each. */
export interface LayerMember {
  readonly type: TarType;
  readonly name: string;
  /** What a symlink points to; the member that a hard link is another name of. */
  readonly link: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Seconds since the epoch. */
  readonly mtime: number;
  /** Of the file, with its holes. */
  readonly size: number;
  readonly device: { readonly major: number; readonly minor: number };
  readonly xattrs: ReadonlyMap<string, Buffer>;
  /** Pieces of a file's content and where they belong; once, and before the next member is asked for. */
  readonly content: AsyncIterable<{ readonly at: number; readonly bytes: Buffer }>;
}

/** Bytes of an extended header. */
const maxExtended = 1_048_576;
const xattrPrefix = "SCHILY.xattr.";

/**
 * The members of a layer's archive: ustar, pax with extended attributes, GNU's long names and files with holes.
 *
 * @throws DSecError `image_invalid`
 */
export async function* readLayerArchive(
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<LayerMember, void, undefined> {
  const bytes = new TarBytes(source, () => imageInvalid("a layer's archive ends in the middle"));
  let records = new Map<string, Buffer>();
  let oldSparse: string[] = [];
  for (;;) {
    const block = await bytes.takeOrEnd(tarBlock);
    // some writers leave out the blocks of zeros at the end
    if (block === undefined || block.every((byte) => byte === 0)) break;
    const header = readTarHeader(block);
    if ("xgLK".includes(header.flag)) {
      if (header.size > maxExtended)
        throw imageInvalid("an extended header in a layer's archive is too long");
      const data = Buffer.from(await bytes.take(header.size));
      await bytes.skip(tarPadding(header.size));
      if (header.flag === "x") oldSparse = addRecords(records, data);
      else if (header.flag !== "g") records.set(header.flag === "L" ? "path" : "linkpath", untilZero(data));
      continue;
    }
    yield* member(bytes, block, header, records, oldSparse);
    records = new Map();
    oldSparse = [];
  }
  await bytes.drain();
}

async function* member(
  bytes: TarBytes,
  block: Buffer,
  header: TarHeader,
  records: TarRecords,
  oldSparse: readonly string[],
): AsyncGenerator<LayerMember, void, undefined> {
  const text = (key: string): string | undefined => records.get(key)?.toString("latin1");
  const count = (key: string, plain: number): number => tarCountOf(text(key), plain);
  let name = text("path") ?? header.name;
  const type = tarTypeOf(header.flag, name);
  let stored = type === "file" ? count("size", header.size) : 0;
  let sparse: SparseMap | undefined;
  if (header.flag === "S") sparse = await takeSparseMap(bytes, block);
  else if (text("GNU.sparse.major") === "1") {
    const found = await readSparseMap(bytes, count("GNU.sparse.realsize", stored));
    stored -= found.bytesRead;
    sparse = found.map;
  } else if (oldSparse.length > 0 || records.has("GNU.sparse.map")) {
    const parts = oldSparse.length > 0 ? oldSparse : (text("GNU.sparse.map") ?? "").split(",");
    sparse = sparseOf(parts, count("GNU.sparse.size", stored));
  }
  name = text("GNU.sparse.name") ?? name;
  const link = text("linkpath") ?? header.link;
  if (name.includes("\0") || link.includes("\0")) throw imageInvalid("a name in a layer has a zero in it");
  const map = sparse ?? { size: stored, parts: [{ at: 0, bytes: stored }] };
  const content = new Content(bytes, map, stored);
  yield {
    type,
    name,
    link,
    mode: header.mode,
    uid: count("uid", header.uid),
    gid: count("gid", header.gid),
    mtime: timeOf(text("mtime"), header.mtime),
    size: map.size,
    device: header.device,
    xattrs: xattrsOf(records),
    content,
  };
  await content.skipRest();
  await bytes.skip(tarPadding(stored));
}

/** Adds what a pax header says; returns the offsets and lengths of GNU's first form for files with holes. */
function addRecords(records: Map<string, Buffer>, data: Buffer): string[] {
  const sparse: string[] = [];
  const malformed = (): DSecError => imageInvalid("an extended header in a layer's archive is malformed");
  for (const [key, value] of readTarRecords(data, malformed)) {
    if (key === "GNU.sparse.offset" || key === "GNU.sparse.numbytes") sparse.push(value.toString("latin1"));
    else records.set(key, value);
  }
  return sparse;
}

function xattrsOf(records: TarRecords): Map<string, Buffer> {
  const xattrs = new Map<string, Buffer>();
  for (const [key, value] of records)
    // a record without a value takes one back
    if (key.startsWith(xattrPrefix) && value.length > 0) xattrs.set(key.slice(xattrPrefix.length), value);
  return xattrs;
}

function tarCountOf(text: string | undefined, plain: number): number {
  return text === undefined || text === "" ? plain : tarCount(text);
}

function timeOf(text: string | undefined, plain: number): number {
  const seconds = text === undefined ? plain : Number(text);
  if (!Number.isFinite(seconds)) throw imageInvalid("a time in a layer's archive is malformed");
  return seconds;
}

function untilZero(data: Buffer): Buffer {
  const zero = data.indexOf(0);
  return zero === -1 ? data : data.subarray(0, zero);
}

/** @param texts offset, length, offset, length… */
function sparseOf(texts: readonly string[], size: number): SparseMap {
  const numbers = texts.map(tarCount);
  const parts = [];
  for (let index = 0; index < numbers.length; index += 2)
    parts.push({ at: numbers[index] ?? 0, bytes: numbers[index + 1] ?? 0 });
  return { size, parts };
}

/** The content of one member, once. */
class Content implements AsyncIterable<{ at: number; bytes: Buffer }> {
  readonly #bytes: TarBytes;
  readonly #map: SparseMap;
  #left: number;

  constructor(bytes: TarBytes, map: SparseMap, stored: number) {
    let end = 0;
    let sum = 0;
    for (const part of map.parts) {
      if (part.at < end) throw imageInvalid("the parts of a file with holes are out of order");
      end = part.at + part.bytes;
      sum += part.bytes;
    }
    if (end > map.size || sum !== stored)
      throw imageInvalid("the parts of a file with holes do not fit its size");
    this.#bytes = bytes;
    this.#map = map;
    this.#left = stored;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<{ at: number; bytes: Buffer }, void, undefined> {
    for (const { at, bytes } of this.#map.parts) {
      for (let done = 0; done < bytes;) {
        const part = await this.#bytes.some(bytes - done);
        if (part.length === 0) throw imageInvalid("a layer's archive ends in the middle");
        this.#left -= part.length;
        yield { at: at + done, bytes: part };
        done += part.length;
      }
    }
  }

  async skipRest(): Promise<void> {
    await this.#bytes.skip(this.#left);
    this.#left = 0;
  }
}
