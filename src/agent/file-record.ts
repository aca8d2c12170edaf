import { Field, readFields } from "./fields.ts";
import { readOffset } from "./frame.ts";
import type { FileType, GuestFileInfo } from "./guest.ts";

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

/** The entries of a FILE_RESULT. */
export function readRecords(payload: Buffer): GuestFileInfo[] {
  const records: GuestFileInfo[] = [];
  for (const { tag, value } of readFields(payload)) if (tag === Field.record) records.push(readRecord(value));
  return records;
}
