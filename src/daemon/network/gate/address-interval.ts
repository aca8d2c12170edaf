import type { Cidr } from "../../../protocol/cidr.ts";

/** IPv4 addresses as numbers, both ends included. */
export interface AddressInterval {
  readonly first: number;
  readonly last: number;
}

export const everyAddress: AddressInterval = { first: 0, last: 0xffff_ffff };

/** @param cidr IPv4 */
export function intervalOf({ bytes, prefixLength }: Cidr): AddressInterval {
  const first = bytes.reduce((value, byte) => value * 256 + byte, 0);
  return { first, last: first + 2 ** (32 - prefixLength) - 1 };
}

/** What is in `from` and in none of `holes`, in order. */
export function without(from: AddressInterval, holes: readonly AddressInterval[]): AddressInterval[] {
  const left: AddressInterval[] = [];
  let first = from.first;
  for (const hole of holes.toSorted((a, b) => a.first - b.first)) {
    if (hole.last < first || hole.first > from.last) continue;
    if (hole.first > first) left.push({ first, last: hole.first - 1 });
    first = Math.max(first, hole.last + 1);
  }
  if (first <= from.last) left.push({ first, last: from.last });
  return left;
}

/** The same addresses in order, no two intervals touching. */
export function merged(intervals: readonly AddressInterval[]): AddressInterval[] {
  const result: AddressInterval[] = [];
  for (const interval of intervals.toSorted((a, b) => a.first - b.first)) {
    const before = result.at(-1);
    if (before === undefined || interval.first > before.last + 1) result.push(interval);
    else if (interval.last > before.last) result.splice(-1, 1, { first: before.first, last: interval.last });
  }
  return result;
}
