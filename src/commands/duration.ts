import { DSecError } from "../protocol/errors.ts";

const unitMs = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
const wholeDuration = /^(?:\d+(?:\.\d+)?(?:ms|[smhd]))+$/;
const part = /(\d+(?:\.\d+)?)(ms|[smhd])/g;

/**
 * Reads `5m`, `1h30m`, `250ms`; a plain number is seconds.
 * @returns milliseconds, at least 0
 * @throws DSecError `invalid_argument`
 */
export function parseDuration(text: string): number {
  if (/^\d+(?:\.\d+)?$/.test(text)) return Math.round(Number(text) * unitMs.s);
  if (!wholeDuration.test(text)) {
    throw new DSecError(
      "invalid_argument",
      `${JSON.stringify(text)} is not a duration: give seconds or, for example, 90s, 5m or 1h30m`,
    );
  }
  let total = 0;
  for (const [, amount, unit] of text.matchAll(part)) total += Number(amount) * unitMs[unitNamed(unit)];
  return Math.round(total);
}

/** As {@link parseDuration}, in whole seconds, rounded up so that a limit is never shorter than asked. */
export function parseSeconds(text: string): number {
  return Math.ceil(parseDuration(text) / unitMs.s);
}

/**
 * Reads a point in time: a duration before `now`, or an ISO 8601 time.
 * @returns milliseconds since the epoch
 * @throws DSecError `invalid_argument`
 */
export function parseInstant(text: string, now: number): number {
  if (/^\d{4}-\d\d-\d\d/.test(text)) {
    const time = Date.parse(text);
    if (!Number.isNaN(time)) return time;
    throw new DSecError("invalid_argument", `${JSON.stringify(text)} is not a time`);
  }
  return now - parseDuration(text);
}

/** Two units at most: `45s`, `5m10s`, `3h2m`, `4d1h`. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const units: readonly (readonly [string, number])[] = [
    ["d", Math.floor(seconds / 86_400)],
    ["h", Math.floor(seconds / 3600) % 24],
    ["m", Math.floor(seconds / 60) % 60],
    ["s", seconds % 60],
  ];
  const first = units.findIndex(([, amount]) => amount > 0);
  if (first === -1) return "0s";
  return units
    .slice(first, first + 2)
    .filter(([, amount]) => amount > 0)
    .map(([unit, amount]) => `${amount}${unit}`)
    .join("");
}

function unitNamed(unit: string | undefined): keyof typeof unitMs {
  return unit === "ms" || unit === "s" || unit === "m" || unit === "h" ? unit : "d";
}
