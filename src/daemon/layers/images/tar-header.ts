import {
  tarChecksum,
  tarField,
  tarFieldNumber,
  type TarType,
  tarTypes,
} from "../../../protocol/tar-member.ts";
import { imageInvalid } from "./image-error.ts";

/** Extended headers in force for one member. Values are bytes. */
export type TarRecords = ReadonlyMap<string, Buffer>;

const typeOf = new Map(tarTypes);
const deviceMajor = [329, 8] as const;
const deviceMinor = [337, 8] as const;

/** What stands in one header block, before extended headers change it. Names are bytes, one character each. */
export interface TarHeader {
  readonly flag: string;
  readonly name: string;
  readonly link: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  /** Seconds since the epoch. */
  readonly mtime: number;
  readonly device: { readonly major: number; readonly minor: number };
}

/** @throws DSecError `image_invalid` */
export function readTarHeader(block: Buffer): TarHeader {
  if (tarNumber(block, tarField.checksum) !== tarChecksum(block))
    throw imageInvalid("a layer is no tar archive, or a damaged one: a checksum is wrong");
  const isPosix = tarText(block, tarField.magic) === "ustar" && block[tarField.magic[0] + 5] === 0;
  const prefix = isPosix ? tarText(block, tarField.prefix) : "";
  const plain = tarText(block, tarField.name);
  const flag = String.fromCharCode(block[tarField.type[0]] ?? 0);
  const isDevice = flag === "3" || flag === "4";
  return {
    flag,
    name: prefix === "" ? plain : `${prefix}/${plain}`,
    link: tarText(block, tarField.link),
    mode: tarNumber(block, tarField.mode) & 0o7777,
    uid: tarNumber(block, tarField.uid),
    gid: tarNumber(block, tarField.gid),
    size: tarNumber(block, tarField.size),
    mtime: tarNumber(block, tarField.mtime, true),
    device: isDevice
      ? { major: tarNumber(block, deviceMajor), minor: tarNumber(block, deviceMinor) }
      : { major: 0, minor: 0 },
  };
}

/** The type that a flag stands for: of those that archives of layers have. */
export function tarTypeOf(flag: string, name: string): TarType {
  const known = typeOf.get(flag) ?? (flag === "\0" || flag === "7" || flag === "S" ? "file" : undefined);
  if (known === undefined)
    throw imageInvalid(`'${printable(name)}' in a layer is of the unknown type ${JSON.stringify(flag)}`);
  return known === "file" && name.endsWith("/") ? "directory" : known;
}

/** @throws DSecError `image_invalid` */
export function tarNumber(
  block: Buffer,
  field: readonly [offset: number, length: number],
  signed = false,
): number {
  const value = tarFieldNumber(block, field);
  if (Number.isNaN(value)) throw imageInvalid("a number in a layer's archive is malformed");
  if (!Number.isSafeInteger(value) || (value < 0 && !signed))
    throw imageInvalid("a number in a layer's archive is out of range");
  return value;
}

export function tarText(block: Buffer, [at, length]: readonly [offset: number, length: number]): string {
  const zero = block.indexOf(0, at);
  return block.toString("latin1", at, zero === -1 ? at + length : Math.min(zero, at + length));
}

/** A count in decimal digits. @throws DSecError `image_invalid` */
export function tarCount(digits: string): number {
  const value = /^[0-9]{1,16}$/.test(digits) ? Number(digits) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw imageInvalid("a number in a layer's archive is out of range");
  return value;
}

/** Of a name from an archive, for a message. */
export function printable(name: string): string {
  return Buffer.from(name.slice(0, 200), "latin1").toString().replaceAll(/\p{C}/gu, "?");
}
