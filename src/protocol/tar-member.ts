/**
 * One member of a tar archive as it goes over the wire: POSIX.1-2001 ("pax"), which every tar reads. Names are bytes, as they are
 * in file systems; that they need not be UTF-8 is why no library is used.
 */

export type TarType = "file" | "link" | "symlink" | "character" | "block" | "directory" | "fifo";

export interface TarMember {
  readonly type: TarType;
  readonly name: Buffer;
  /** Permission bits, with set-id and sticky. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes of content that follow; 0 but for files. */
  readonly size: number;
  /** Milliseconds since the epoch. */
  readonly mtimeMs: number;
  /** What a symlink points to; the member that a hard link is another name of. */
  readonly link?: Buffer;
}

export const tarBlock = 512;

export const tarTypes: readonly (readonly [flag: string, type: TarType])[] = [
  ["0", "file"],
  ["1", "link"],
  ["2", "symlink"],
  ["3", "character"],
  ["4", "block"],
  ["5", "directory"],
  ["6", "fifo"],
];

/** Where the fields of a header are. */
export const tarField = {
  name: [0, 100],
  mode: [100, 8],
  uid: [108, 8],
  gid: [116, 8],
  size: [124, 12],
  mtime: [136, 12],
  checksum: [148, 8],
  type: [156, 1],
  link: [157, 100],
  magic: [257, 8],
  prefix: [345, 155],
} as const satisfies Record<string, readonly [offset: number, length: number]>;

/** The sum of a header's bytes, its own field counted as spaces. */
export function tarChecksum(header: Uint8Array): number {
  const [at, length] = tarField.checksum;
  let sum = 32 * length;
  for (let index = 0; index < tarBlock; index += 1)
    if (index < at || index >= at + length) sum += header[index] ?? 0;
  return sum;
}

/** Zeros after `size` bytes of content. */
export function tarPadding(size: number): number {
  return (tarBlock - (size % tarBlock)) % tarBlock;
}

/** A field of octal digits or, with the first bit set, a binary number: NaN where it is neither, and possibly beyond what is safe. */
export function tarFieldNumber(
  header: Buffer,
  [at, length]: readonly [offset: number, length: number],
): number {
  const first = header[at] ?? 0;
  if ((first & 0x80) === 0) {
    const digits = header.toString("latin1", at, at + length).replace(/^ +|[\0 ][^]*$/g, "");
    if (!/^[0-7]*$/.test(digits)) return Number.NaN;
    return digits === "" ? 0 : Number.parseInt(digits, 8);
  }
  let bits = BigInt(first & 0x7f);
  for (const byte of header.subarray(at + 1, at + length)) bits = (bits << 8n) | BigInt(byte);
  return Number(BigInt.asIntN(8 * length - 1, bits));
}
