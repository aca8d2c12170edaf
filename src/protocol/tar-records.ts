import type { DSecError } from "./errors.ts";

/**
 * The records of a pax header, in order: GNU's old form for files with holes repeats keys.
 * @param malformed what one that cannot be read is refused with
 */
export function readTarRecords(data: Buffer, malformed: () => DSecError): [key: string, value: Buffer][] {
  const records: [string, Buffer][] = [];
  for (let at = 0; at < data.length;) {
    const space = data.indexOf(0x20, at);
    const length = space === -1 ? Number.NaN : Number(data.toString("latin1", at, space));
    const equals = data.indexOf(0x3d, space);
    const end = at + length - 1;
    if (!Number.isSafeInteger(length) || equals === -1 || equals > end || data[end] !== 0x0a)
      throw malformed();
    records.push([data.toString("latin1", space + 1, equals), data.subarray(equals + 1, end)]);
    at = end + 1;
  }
  return records;
}
