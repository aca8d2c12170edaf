import { Command, CommanderError } from "commander";
import { DSecError } from "../protocol/errors.ts";
import { listingFormats, outputOption } from "./format.ts";
import type { Format } from "./format.ts";
import { commanderOption, longName, readOptions } from "./option.ts";
import type { OptionSpecs } from "./option.ts";
import { globalOptions } from "./settings.ts";
import type { GlobalOptions } from "./settings.ts";
import type { Verb, VerbGroup } from "./verb.ts";
import { findVerb, verbGroups } from "./verbs.ts";

/** Code of the end of parsing where `--version` stands. */
const versionAsked = "dsec.version";

/** What the arguments ask for. */
export interface Invocation {
  readonly verb: Verb;
  readonly given: (attributeName: string) => unknown;
  readonly operands: readonly string[];
  readonly globals: GlobalOptions;
  readonly format: Format;
}

/** Where help goes, and what is known of the wanted form of errors when the arguments cannot be read. */
export interface Terminal {
  readonly width: number | undefined;
  writeOut(text: string): void;
  /** Called as soon as it is known, also when the rest of the arguments turns out to be wrong. */
  formatKnown(format: string): void;
}

/**
 * Reads the arguments; loads the one verb they name.
 * @returns undefined when help or the version was asked for and has been written
 * @throws DSecError `invalid_argument`
 */
export async function parseArguments(
  argv: readonly string[],
  terminal: Terminal,
): Promise<Invocation | undefined> {
  const program = createProgram(terminal);
  let invocation: Invocation | undefined;
  const select = (verb: Verb, command: Command): void => {
    const given = (name: string): unknown => givenTo(command, name);
    invocation = {
      verb,
      given,
      operands: verb.passThrough === true ? withoutSeparator(command.args) : command.args,
      globals: readOptions(globalOptions, (name) => given(name) ?? givenTo(program, name)),
      format: readOptions({ format: formatOption(verb) }, given).format,
    };
  };
  program.hook("preSubcommand", async (_, command) => {
    const entry = findVerb(command.name());
    if (entry !== undefined) addVerb(command, entry.summary, await entry.load(), terminal, select);
  });
  try {
    await program.parseAsync(helpAsFlag(argv), { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.code === versionAsked) {
      const { packageVersion } = await import("./package-version.ts");
      terminal.writeOut(`${await packageVersion()}\n`);
    }
    // a noun alone has shown its verbs, as `dsec` alone does
    if (error.exitCode === 0 || error.code === "commander.help") return undefined;
    throw usageError(error);
  }
  return invocation;
}

function createProgram(terminal: Terminal): Command {
  const program = new Command("dsec")
    .description("Operate fleets of sandboxes for agents.")
    .usage("[options] VERB …")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.writeOut(text),
      writeErr: (text) => terminal.writeOut(text),
      // printed once, with its code, by whoever catches it
      outputError: () => undefined,
      getOutHelpWidth: () => terminal.width ?? 100,
      getErrHelpWidth: () => terminal.width ?? 100,
    })
    .enablePositionalOptions()
    .helpOption("-h, --help", "show help")
    .helpCommand(false)
    .option("-V, --version", "print the version")
    .on("option:version", () => {
      throw new CommanderError(0, versionAsked, "");
    })
    .optionsGroup("Global options:");
  addOptions(program, globalOptions);
  for (const [heading, entries] of Object.entries(verbGroups)) {
    program.commandsGroup(`${heading}:`);
    for (const [name, { summary }] of Object.entries(entries)) program.command(name).summary(summary);
  }
  return program.addHelpText("after", "\n`dsec VERB --help` says more; docs/cli.md says all.");
}

function addVerb(
  command: Command,
  summary: string,
  loaded: Verb | VerbGroup,
  terminal: Terminal,
  select: (verb: Verb, command: Command) => void,
): void {
  if ("verbs" in loaded) {
    command.description(summary).helpCommand("help [command]", "show help");
    for (const [name, entry] of Object.entries(loaded.verbs))
      addVerb(command.command(name).summary(entry.summary), entry.summary, entry.verb, terminal, select);
    return;
  }
  const { description, examples, operands, passThrough, options } = loaded;
  // its lines are those of docs/cli.md; here the terminal's width decides
  const reflowed = description?.replaceAll("\n", " ");
  command.description(reflowed === undefined ? summary : `${summary}\n\n${reflowed}`);
  if (operands !== undefined) command.arguments(operands);
  if (passThrough === true) command.passThroughOptions();
  addOptions(command, options);
  if (loaded.formats !== undefined) {
    addOptions(command, { format: formatOption(loaded) });
    command.on("option:output", (format: string) => terminal.formatKnown(format));
  }
  // a verb's own flag of the same name goes before the global one
  const own = new Set(command.options.map(({ long }) => long));
  const others = Object.entries(globalOptions).filter(([, spec]) => !own.has(longName(spec.flags)));
  addOptions(command, Object.fromEntries(others), true);
  if (examples !== undefined)
    command.addHelpText("after", `\nExamples:\n${examples.map((line) => `  ${line}`).join("\n")}`);
  command.addHelpText("after", "\nGlobal options: see `dsec --help`.");
  command.action(() => select(loaded, command));
}

function formatOption(verb: Verb): ReturnType<typeof outputOption> {
  return outputOption(verb.formats ?? listingFormats);
}

function addOptions(command: Command, specs: OptionSpecs, hidden = false): void {
  for (const spec of Object.values(specs)) {
    const option = commanderOption(spec);
    command.addOption(hidden ? option.hideHelp() : option);
  }
}

/** What stands on the command line; commander also has defaults of its own. */
function givenTo(command: Command, name: string): unknown {
  return command.getOptionValueSource(name) === "cli" ? command.getOptionValue(name) : undefined;
}

/** `dsec help run` and `dsec` alone, as docker and kubectl take them. */
function helpAsFlag(argv: readonly string[]): string[] {
  if (argv.length === 0) return ["--help"];
  return argv[0] === "help" ? [...argv.slice(1), "--help"] : [...argv];
}

/** The `--` between the reference or image and the command is ours; every later one is the command's. */
function withoutSeparator(operands: readonly string[]): readonly string[] {
  const [first, second, ...rest] = operands;
  return first !== undefined && second === "--" ? [first, ...rest] : operands;
}

function usageError(error: CommanderError): DSecError {
  const message = error.message.replace(/^error: /, "").replaceAll("\n", " ");
  return new DSecError("invalid_argument", message, { details: { usage: error.code } });
}
