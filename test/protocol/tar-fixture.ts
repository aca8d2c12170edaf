/** Archives made by hand. */
import { encodeTarHeader, tarEnd } from "../../src/protocol/tar-encode.ts";
import { type TarMember, tarPadding } from "../../src/protocol/tar-member.ts";

export async function* inParts(bytes: Buffer, length = 70_000): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

/** A member of an archive: what is not given is a plain file's. */
export type Member = readonly [name: string, given: Given];
type Given = Partial<Omit<TarMember, "name" | "link">> & { link?: string; content?: string };

export function tarOf(...members: readonly Member[]): Buffer {
  const parts = members.map(([name, { content = "", link, ...given }]) => {
    const bytes = Buffer.from(content);
    const header = encodeTarHeader({
      type: "file",
      mode: 0o644,
      uid: 0,
      gid: 0,
      mtimeMs: 1000,
      size: bytes.length,
      name: Buffer.from(name),
      ...(link === undefined ? {} : { link: Buffer.from(link) }),
      ...given,
    });
    return Buffer.concat([header, bytes, Buffer.alloc(tarPadding(bytes.length))]);
  });
  return Buffer.concat([...parts, tarEnd]);
}
