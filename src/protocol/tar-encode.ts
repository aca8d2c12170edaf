import { tarBlock, tarChecksum, tarField, type TarMember, tarPadding, tarTypes } from "./tar-member.ts";

const smallMax = 0o7777777;
const largeMax = 0o77777777777;
const flagOf = new Map(tarTypes.map(([flag, type]) => [type, flag]));

/** The end of an archive. */
export const tarEnd: Buffer = Buffer.alloc(2 * tarBlock);

/** The header of a member, with an extended one before it where the plain one cannot say it all. */
export function encodeTarHeader(member: TarMember): Buffer {
  const { name, link, size, uid, gid, mtimeMs } = member;
  const seconds = Math.floor(mtimeMs / 1000);
  const nanoseconds = Math.min(Math.round((mtimeMs - seconds * 1000) * 1e6), 999_999_999);
  const records: Buffer[] = [];
  if (name.length > tarField.name[1]) records.push(record("path", name));
  if (link !== undefined && link.length > tarField.link[1]) records.push(record("linkpath", link));
  if (size > largeMax) records.push(record("size", size));
  if (uid > smallMax) records.push(record("uid", uid));
  if (gid > smallMax) records.push(record("gid", gid));
  if (nanoseconds > 0 || seconds < 0 || seconds > largeMax)
    records.push(record("mtime", timeText(seconds, nanoseconds)));
  const header = headerBlock(member, flagOf.get(member.type) ?? "0", size, seconds);
  if (records.length === 0) return header;
  const extended = Buffer.concat(records);
  const head = { ...member, name: Buffer.from("PaxHeaders/entry"), mode: 0o644, uid: 0, gid: 0 };
  const { link: _, ...headMember } = head;
  return Buffer.concat([
    headerBlock(headMember, "x", extended.length, 0),
    extended,
    Buffer.alloc(tarPadding(extended.length)),
    header,
  ]);
}

function headerBlock(member: TarMember, flag: string, size: number, seconds: number): Buffer {
  const block = Buffer.alloc(tarBlock);
  const octal = ([at, length]: readonly [number, number], value: number, max: number): void => {
    const text = (value > max || value < 0 ? 0 : value).toString(8);
    block.write(text.padStart(length - 1, "0"), at, "latin1");
  };
  block.set(member.name.subarray(0, tarField.name[1]), tarField.name[0]);
  octal(tarField.mode, member.mode, smallMax);
  octal(tarField.uid, member.uid, smallMax);
  octal(tarField.gid, member.gid, smallMax);
  octal(tarField.size, size, largeMax);
  octal(tarField.mtime, seconds, largeMax);
  block.write(flag, tarField.type[0], "latin1");
  if (member.link !== undefined) block.set(member.link.subarray(0, tarField.link[1]), tarField.link[0]);
  block.write("ustar\u000000", tarField.magic[0], "latin1");
  block.write(`${tarChecksum(block).toString(8).padStart(6, "0")}\0 `, tarField.checksum[0], "latin1");
  return block;
}

/** `LENGTH KEY=VALUE\n`, where LENGTH counts itself. */
function record(key: string, value: Buffer | string | number): Buffer {
  const bytes = typeof value === "object" ? value : Buffer.from(String(value));
  const rest = key.length + bytes.length + 3;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length += 1;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), bytes, Buffer.from("\n")]);
}

/** The fraction of a time before 1970 counts the other way. */
function timeText(seconds: number, nanoseconds: number): string {
  const before = seconds < 0 && nanoseconds > 0;
  const whole = before ? seconds + 1 : seconds;
  const fraction = String(before ? 1e9 - nanoseconds : nanoseconds).padStart(9, "0");
  return `${before && whole === 0 ? "-" : ""}${whole}.${fraction}`;
}
