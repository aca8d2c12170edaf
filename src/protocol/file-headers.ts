/** Headers and trailers of files on the wire. No zod here: the SDK needs them. */
export const fileHeaders = {
  /** Of an answer with content: FileInfo as JSON in ASCII. */
  info: "x-dsec-file",
  /** Trailers of an upload, one of them: SHA-256 or CRC-32 of everything that was sent, in hexadecimal. */
  sha256: "x-dsec-sha256",
  crc32: "x-dsec-crc32",
  /** Trailer of an archive: ArchiveResult as JSON in ASCII. An archive without it was cut off. */
  archive: "x-dsec-archive",
} as const;

/** JSON that fits a header: other characters are escaped. */
export function headerJson(value: unknown): string {
  return JSON.stringify(value).replaceAll(
    /[\u007f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
