import { Option } from "commander";
import { DSecError } from "../protocol/errors.ts";

/** One flag of a verb as data: parsing, help, completion and the reference are made from it. */
export interface OptionSpec<T> {
  /** As commander writes them: `-l, --label <key=value>`. */
  readonly flags: string;
  readonly help: string;
  /** Value without the flag. */
  readonly initial: T;
  readonly choices?: readonly string[];
  readonly hidden?: boolean;
  /** Absent: the flag takes no value. */
  parse?(text: string, previous: T): T;
}

export type OptionSpecs = Readonly<Record<string, OptionSpec<unknown>>>;
export type OptionValues<O extends OptionSpecs> = {
  readonly [K in keyof O]: O[K] extends OptionSpec<infer T> ? T : never;
};

/** A flag that is given or not. */
export function flag(flags: string, help: string): OptionSpec<boolean> {
  return { flags, help, initial: false };
}

/** A flag with a value. `parse` throws DSecError `invalid_argument`. */
export function value<T>(flags: string, help: string, parse: (text: string) => T): OptionSpec<T | undefined> {
  return { flags, help, initial: undefined, parse: (text) => naming(flags, text, parse) };
}

export function text(flags: string, help: string): OptionSpec<string | undefined> {
  return value(flags, help, (given) => given);
}

/** A flag that may be repeated. */
export function many<T>(flags: string, help: string, parse: (text: string) => T): OptionSpec<readonly T[]> {
  return {
    flags,
    help,
    initial: [],
    parse: (given, previous) => [...previous, naming(flags, given, parse)],
  };
}

/** A flag whose value is one of `choices`. */
export function choice<const C extends string>(
  flags: string,
  help: string,
  choices: readonly C[],
): OptionSpec<C | undefined> {
  const parse = (given: string): C => {
    const found = choices.find((known) => known === given);
    if (found !== undefined) return found;
    throw new DSecError("invalid_argument", `${JSON.stringify(given)} is not one of ${choices.join(", ")}`);
  };
  return { ...value(flags, help, parse), choices };
}

/** A number in its usual notation; what range makes sense is the server's to say. */
export function parseNumber(given: string): number {
  const number = Number(given);
  if (given.trim() !== "" && Number.isFinite(number)) return number;
  throw new DSecError("invalid_argument", `${JSON.stringify(given)} is not a number`);
}

export function parseCount(given: string): number {
  if (/^\d+$/.test(given)) return Number(given);
  throw new DSecError("invalid_argument", `${JSON.stringify(given)} is not a whole number of at least 0`);
}

/** The commander option of a spec. A flag that is not given has no value there: {@link readOptions} fills it in. */
export function commanderOption(spec: OptionSpec<unknown>): Option {
  const option = new Option(spec.flags, spec.help);
  if (spec.parse !== undefined)
    option.argParser<unknown>((given, previous) => spec.parse?.(given, previous ?? spec.initial));
  return spec.hidden === true ? option.hideHelp() : option;
}

/** The values of `specs`, by the names they have there; `given` looks up what commander found. */
export function readOptions<O extends OptionSpecs>(
  specs: O,
  given: (attributeName: string) => unknown,
): OptionValues<O> {
  const entries = Object.entries(specs).map(([name, spec]) => {
    const option = new Option(spec.flags);
    const found = given(option.attributeName());
    // commander sets `color` to false for --no-color
    return [name, option.negate ? found === false : (found ?? spec.initial)] as const;
  });
  return Object.fromEntries(entries) as OptionValues<O>;
}

function naming<T>(flags: string, given: string, parse: (text: string) => T): T {
  try {
    return parse(given);
  } catch (error) {
    if (!(error instanceof DSecError)) throw error;
    throw new DSecError(error.code, `${longName(flags)}: ${error.message}`, { cause: error.cause });
  }
}

/** `--label` of `-l, --label <key=value>`. */
export function longName(flags: string): string {
  return /--[a-z-]+/.exec(flags)?.[0] ?? flags;
}
