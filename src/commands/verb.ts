import type { DSecClient } from "../sdk/index.ts";
import type { Format, Formats } from "./format.ts";
import type { Io } from "./io.ts";
import { readOptions } from "./option.ts";
import type { OptionSpecs, OptionValues } from "./option.ts";
import type { Outcome } from "./outcome.ts";
import type { Settings } from "../sdk/settings.ts";

/** What a verb works with. */
export interface Context {
  readonly io: Io;
  /** That the outcome will be printed in. */
  readonly format: Format;
  /** Resolved when first asked for: verbs that need no fleet also work beside a broken config file. */
  readonly settings: () => Promise<Settings>;
  /** The client of the fleet that the settings name; closed when the verb is done. */
  readonly client: () => Promise<DSecClient>;
}

interface Definition<O extends OptionSpecs> {
  /** What `dsec VERB --help` says beyond the summary in the table of verbs. */
  readonly description?: string;
  readonly examples?: readonly string[];
  /** As commander writes them: `<ref...>`. */
  readonly operands?: string;
  /** Everything after the first operand belongs to a command and is passed on unparsed. */
  readonly passThrough?: true;
  readonly options: O;
  readonly formats?: Formats;
  run(context: Context, options: OptionValues<O>, operands: readonly string[]): Promise<Outcome>;
}

/** One verb of the CLI. */
export interface Verb extends Omit<Definition<OptionSpecs>, "run"> {
  /** `given` looks up an option that was given, by commander's name for it. */
  readonly run: (
    context: Context,
    given: (attributeName: string) => unknown,
    operands: readonly string[],
  ) => Promise<Outcome>;
}

/** Verbs of one noun: `dsec layer build`. */
export interface VerbGroup {
  readonly verbs: Readonly<Record<string, { readonly summary: string; readonly verb: Verb }>>;
}

export function defineVerb<const O extends OptionSpecs>(definition: Definition<O>): Verb {
  return {
    ...definition,
    run: (context, given, operands) =>
      definition.run(context, readOptions(definition.options, given), operands),
  };
}
