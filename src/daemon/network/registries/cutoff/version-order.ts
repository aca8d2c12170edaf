/** A version by semver.org: what decides its place among others. */
export interface Version {
  readonly text: string;
  readonly numbers: readonly number[];
  /** Empty for a release proper. */
  readonly prerelease: readonly string[];
}

const form = /^v?(\d{1,15})\.(\d{1,15})\.(\d{1,15})(?:-([0-9A-Za-z.-]{1,200}))?(?:\+[0-9A-Za-z.-]{1,200})?$/;

/** Undefined for what is no version. */
export function parseVersion(text: string): Version | undefined {
  const [, major, minor, patch, prerelease] = form.exec(text) ?? [];
  if (major === undefined) return undefined;
  return {
    text,
    numbers: [major, minor, patch].map(Number),
    prerelease: prerelease?.split(".") ?? [],
  };
}

/** Below 0 where `a` is the older, by precedence. */
export function compareVersions(a: Version, b: Version): number {
  for (const [index, number] of a.numbers.entries()) {
    const difference = number - (b.numbers[index] ?? 0);
    if (difference !== 0) return difference;
  }
  // A release comes after all that led up to it.
  if (a.prerelease.length === 0 || b.prerelease.length === 0)
    return b.prerelease.length - a.prerelease.length;
  for (const [index, part] of a.prerelease.entries()) {
    const other = b.prerelease[index];
    if (other === undefined) return 1;
    const difference = compareIdentifiers(part, other);
    if (difference !== 0) return difference;
  }
  return a.prerelease.length - b.prerelease.length;
}

function compareIdentifiers(a: string, b: string): number {
  const [aIsNumber, bIsNumber] = [/^\d+$/.test(a), /^\d+$/.test(b)];
  if (aIsNumber && bIsNumber) return Number(a) - Number(b);
  if (aIsNumber !== bIsNumber) return aIsNumber ? -1 : 1;
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
