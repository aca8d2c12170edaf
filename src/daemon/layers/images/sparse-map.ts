import { tarBlock } from "../../../protocol/tar-member.ts";
import { imageInvalid } from "./image-error.ts";
import type { TarBytes } from "../../../protocol/tar-bytes.ts";
import { tarCount, tarNumber } from "./tar-header.ts";

/** Where the stored parts of a file with holes belong. */
export interface SparseMap {
  /** Of the file, with its holes. */
  readonly size: number;
  readonly parts: readonly { readonly at: number; readonly bytes: number }[];
}

/** Parts of one file. */
const mostParts = 1_000_000;
const entryBytes = 24;
const inHeader = { at: 386, entries: 4, more: 482, size: [483, 12] as const };
const inBlock = { at: 0, entries: 21, more: 504 };

/** GNU's oldest form: the map stands in the header, and in blocks after it. @throws DSecError `image_invalid` */
export async function takeSparseMap(bytes: TarBytes, header: Buffer): Promise<SparseMap> {
  const parts: { at: number; bytes: number }[] = [];
  const read = (block: Buffer, { at, entries }: { at: number; entries: number }): void => {
    for (let entry = at; entry < at + entries * entryBytes; entry += entryBytes) {
      const length = tarNumber(block, [entry + 12, 12]);
      const offset = tarNumber(block, [entry, 12]);
      if (length > 0 || offset > 0) parts.push({ at: offset, bytes: length });
    }
    refuseTooMany(parts.length);
  };
  const size = tarNumber(header, inHeader.size);
  let more = header[inHeader.more] === 1;
  read(header, inHeader);
  while (more) {
    const block = Buffer.from(await bytes.take(tarBlock));
    more = block[inBlock.more] === 1;
    read(block, inBlock);
  }
  return { size, parts };
}

/** The newest form: lines at the beginning of the content, filled up to a whole block. @throws DSecError `image_invalid` */
export async function readSparseMap(
  bytes: TarBytes,
  size: number,
): Promise<{ readonly map: SparseMap; readonly bytesRead: number }> {
  let bytesRead = 0;
  let text = "";
  const nextNumber = async (): Promise<number> => {
    for (;;) {
      const end = text.indexOf("\n");
      if (end !== -1) {
        const digits = text.slice(0, end);
        text = text.slice(end + 1);
        return tarCount(digits);
      }
      if (text.length > tarBlock) throw imageInvalid("the map of a file with holes is malformed");
      text += (await bytes.take(tarBlock)).toString("latin1");
      bytesRead += tarBlock;
    }
  };
  const count = await nextNumber();
  refuseTooMany(count);
  const parts: { at: number; bytes: number }[] = [];
  for (let part = 0; part < count; part += 1)
    parts.push({ at: await nextNumber(), bytes: await nextNumber() });
  return { map: { size, parts }, bytesRead };
}

function refuseTooMany(parts: number): void {
  if (parts > mostParts) throw imageInvalid("a file with holes has too many parts");
}
