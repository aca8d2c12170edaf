import { Option } from "commander";
import { outputOption } from "./format.ts";
import type { OptionSpec } from "./option.ts";
import { globalOptions } from "./settings.ts";
import type { Verb } from "./verb.ts";
import { verbGroups } from "./verbs.ts";

/** What the table of verbs says, as completion scripts and the reference need it. */
export interface VerbModel {
  /** `["config", "use-context"]` */
  readonly path: readonly string[];
  readonly heading: string;
  readonly summary: string;
  readonly verb: Verb | undefined;
  readonly options: readonly OptionModel[];
  /** Names of what comes below; empty for a verb. */
  readonly children: readonly string[];
  /** What the operands are, where that can be listed. */
  readonly operand: "sandbox" | "context" | "shell" | "none";
}

export interface OptionModel {
  readonly flags: string;
  readonly names: readonly string[];
  readonly help: string;
  readonly takesValue: boolean;
  readonly choices: readonly string[];
}

/** Loads every verb. */
export async function completionModel(): Promise<readonly VerbModel[]> {
  const models: VerbModel[] = [];
  for (const [heading, entries] of Object.entries(verbGroups)) {
    for (const [name, { summary, load }] of Object.entries(entries)) {
      const loaded = await load();
      if (!("verbs" in loaded)) {
        models.push(modelOf([name], heading, summary, loaded));
        continue;
      }
      const children = Object.keys(loaded.verbs);
      models.push({
        path: [name],
        heading,
        summary,
        verb: undefined,
        options: [],
        children,
        operand: "none",
      });
      for (const [child, entry] of Object.entries(loaded.verbs))
        models.push(modelOf([name, child], heading, entry.summary, entry.verb));
    }
  }
  return models;
}

export const globalOptionModels: readonly OptionModel[] = Object.values(globalOptions).map(optionModel);

function modelOf(path: readonly string[], heading: string, summary: string, verb: Verb): VerbModel {
  const specs: OptionSpec<unknown>[] = Object.values(verb.options);
  if (verb.formats !== undefined) specs.push(outputOption(verb.formats));
  const options = specs.filter(({ hidden }) => hidden !== true).map(optionModel);
  return { path, heading, summary, verb, options, children: [], operand: operandOf(path, verb.operands) };
}

function optionModel(spec: OptionSpec<unknown>): OptionModel {
  const { short, long } = new Option(spec.flags);
  const names = [short, long].filter((name) => name !== undefined);
  const { flags, help, choices = [] } = spec;
  return { flags, names, help, takesValue: spec.parse !== undefined, choices };
}

function operandOf(path: readonly string[], operands: string | undefined): VerbModel["operand"] {
  if (operands?.includes("ref") === true) return "sandbox";
  if (operands === "<shell>") return "shell";
  return path[0] === "config" && operands !== undefined ? "context" : "none";
}
