import { constants } from "node:os";
import { DSecError } from "../../protocol/errors.ts";

const numbers: Readonly<Record<string, number>> = constants.signals;
const names = new Map(Object.entries(numbers).map(([name, number]) => [number, name]));

/** `TERM`, `SIGTERM` or `15`. @throws DSecError `invalid_argument` */
export function signalNumber(text: string): number {
  const upper = text.toUpperCase();
  const name = upper.startsWith("SIG") ? upper : `SIG${upper}`;
  const number = /^\d{1,2}$/.test(text)
    ? Number(text)
    : Object.hasOwn(numbers, name)
      ? numbers[name]
      : undefined;
  if (number === undefined || number < 1 || number > 64)
    throw new DSecError("invalid_argument", `signal: there is no signal ${JSON.stringify(text)}`);
  return number;
}

/** `SIGTERM` for 15; a real-time signal by its number. */
export function signalName(number: number): string {
  return names.get(number) ?? `SIG${number}`;
}
