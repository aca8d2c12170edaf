import { createHash } from "node:crypto";
import { inspect, isDeepStrictEqual } from "node:util";
import { DSecError } from "../../src/sdk/index.ts";

/** Something else came than the model predicts. */
export class Mismatch extends Error {
  override readonly name = "Mismatch";
}

/** @throws Mismatch */
export function expectEqual(what: string, actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected))
    throw new Mismatch(`${what}: ${shown(actual)} instead of ${shown(expected)}`);
}

/** Long contents are compared by length and hash. @throws Mismatch */
export function expectBytes(what: string, actual: Uint8Array, expected: Uint8Array): void {
  if (Buffer.compare(actual, expected) !== 0)
    throw new Mismatch(`${what}: ${digest(actual)} instead of ${digest(expected)}`);
}

/** @param errno of a `file_error` @throws Mismatch */
export async function expectRefusal(
  what: string,
  call: Promise<unknown>,
  code: string,
  errno?: string,
): Promise<void> {
  const outcome = await call.then(
    (value) => `success with ${shown(value)}`,
    (error: unknown) => error,
  );
  if (!(outcome instanceof DSecError)) throw new Mismatch(`${what}: ${shown(outcome)} instead of ${code}`);
  expectEqual(what, outcome.code, code);
  if (errno !== undefined) expectEqual(what, outcome.details?.["errno"], errno);
}

export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function digest(bytes: Uint8Array): string {
  const head = Buffer.from(bytes.subarray(0, 48)).toString("latin1");
  return `${bytes.length} bytes ${sha256(bytes).slice(0, 12)} ${JSON.stringify(head)}`;
}

function shown(value: unknown): string {
  return inspect(value, { depth: 4, maxStringLength: 300, breakLength: Infinity }).slice(0, 800);
}
