import { DSecError } from "../protocol/errors.ts";

const suffixes = ["b", "k", "m", "g", "t"] as const;
const pattern = /^(\d+(?:\.\d+)?)(?:([bkmgt])(?:i?b)?)?$/;
const mebibyte = 1_048_576;

/**
 * Reads a size as docker does: a plain number is bytes; `k`, `m`, `g`, `t` (also `kb`, `KiB`) are powers of 1,024.
 * @returns bytes
 * @throws DSecError `invalid_argument`
 */
export function parseSize(text: string): number {
  const [, amount, suffix] = pattern.exec(text.toLowerCase()) ?? [];
  if (amount === undefined) {
    throw new DSecError(
      "invalid_argument",
      `${JSON.stringify(text)} is not a size: give bytes or, for example, 512m or 2g`,
    );
  }
  const power = suffixes.findIndex((known) => known === (suffix ?? "b"));
  return Math.round(Number(amount) * 1024 ** power);
}

/**
 * As {@link parseSize}, in whole MiB, rounded up. A plain number that is less than a MiB was surely meant otherwise and
 * is refused.
 */
export function parseMebibytes(text: string): number {
  const bytes = parseSize(text);
  if (bytes > 0 && bytes < mebibyte && /^\d+$/.test(text)) {
    throw new DSecError(
      "invalid_argument",
      `${JSON.stringify(text)} is less than 1 MiB, since a plain number is bytes: did you mean ${text}m?`,
    );
  }
  return Math.ceil(bytes / mebibyte);
}

/** `0`, `700K`, `512M`, `1.5G`: powers of 1,024, at most one decimal. */
export function formatSize(bytes: number): string {
  let amount = bytes;
  let power = 0;
  while (amount >= 1024 && power < suffixes.length - 1) {
    amount /= 1024;
    power += 1;
  }
  const digits = amount < 10 && !Number.isInteger(amount) ? amount.toFixed(1) : String(Math.round(amount));
  return power === 0 ? digits : `${digits}${(suffixes[power] ?? "b").toUpperCase()}`;
}
