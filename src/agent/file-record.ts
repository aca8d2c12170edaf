import { Field, readFields } from "./fields.ts";
import { readOffset } from "./frame.ts";
import { errnoName } from "./agent-error.ts";
import type { FileType, GuestArchiveResult, GuestFileInfo } from "./guest.ts";

/** By `S_IFMT >> 12`. */
const types: Readonly<Record<number, FileType>> = {
  1: "fifo",
  2: "character",
  4: "directory",
  6: "block",
  8: "file",
  10: "symlink",
  12: "socket",
};

const NAME_AT = 31;
/** An agent tells no more; one that was tampered with might. */
const MOST_SKIPPED = 100;

function readRecord(record: Buffer): GuestFileInfo {
  const nameEnd = NAME_AT + record.readUInt16LE(NAME_AT - 2);
  const type = types[record.readUInt8(0)] ?? "file";
  return {
    // The chunk of the connection these lie in is not to be kept alive by a name.
    name: Buffer.from(record.subarray(NAME_AT, nameEnd)),
    type,
    mode: record.readUInt32LE(1),
    uid: record.readUInt32LE(5),
    gid: record.readUInt32LE(9),
    size: readOffset(record, 13),
    mtimeMs: Number(record.readBigInt64LE(21) / 1_000_000n),
    ...(type === "symlink" ? { linkTarget: Buffer.from(record.subarray(nameEnd + 2)) } : {}),
  };
}

/** What the FILE_RESULTs of one operation say. */
export class FileResults {
  readonly records: GuestFileInfo[] = [];
  /** Which entry an ERROR is about. */
  entry: Buffer | undefined;
  /** Of all that came. */
  bytes = 0;
  readonly #skipped: { readonly path: Buffer; readonly errno: string }[] = [];
  #totals = { entries: 0, bytes: 0, skippedCount: 0 };

  add(payload: Buffer): void {
    this.bytes += payload.length;
    for (const { tag, value } of readFields(payload)) {
      if (tag === Field.record) this.records.push(readRecord(value));
      else if (tag === Field.entry) this.entry = Buffer.from(value.subarray(4));
      else if (tag === Field.skipped && this.#skipped.length < MOST_SKIPPED)
        this.#skipped.push({
          errno: errnoName(value.readUInt32LE(0)) ?? "EIO",
          path: Buffer.from(value.subarray(4)),
        });
      else if (tag === Field.totals)
        this.#totals = {
          entries: readOffset(value, 0),
          bytes: readOffset(value, 8),
          skippedCount: readOffset(value, 16),
        };
    }
  }

  get archive(): GuestArchiveResult {
    return { ...this.#totals, skipped: this.#skipped };
  }
}
