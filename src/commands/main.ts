import type { DSecClient } from "../sdk/index.ts";
import { isJson } from "./format.ts";
import { isTerminal, write } from "./io.ts";
import type { Io } from "./io.ts";
import type { Outcome } from "./outcome.ts";
import { print } from "./print.ts";
import { parseArguments } from "./program.ts";
import type { Invocation, Terminal } from "./program.ts";
import { checkArguments } from "./raw-arguments.ts";
import { asDSecError, reportError } from "./report-error.ts";
import { loadSettings } from "./settings.ts";
import type { Settings } from "../sdk/settings.ts";
import { painter, wantsColors } from "./theme.ts";

/**
 * Runs one command line.
 * @returns the exit code: of the command in the sandbox, or by the table of error codes
 */
export async function main(argv: readonly string[], io: Io): Promise<number> {
  let json = io.env["DSEC_ERROR_FORMAT"] === "json";
  let colors = !argv.includes("--no-color");
  const report = (error: unknown): number => {
    const known = asDSecError(error);
    const paint = painter(colors && wantsColors(isTerminal(io.stderr), io.env));
    reportError(known, io, { json, paint });
    return known.exitCode;
  };
  try {
    checkArguments(argv);
    const invocation = await parseArguments(argv, {
      ...terminalOf(io),
      formatKnown: (format) => {
        json ||= isJson(format);
      },
    });
    if (invocation === undefined) return 0;
    colors = !invocation.globals.noColor;
    const { outcome, exitCode } = await execute(invocation, io, colors);
    const failures = outcome.type === "listing" ? (outcome.failures ?? []) : [];
    return failures.map(report).find((code) => code !== 0) ?? exitCode;
  } catch (error) {
    return report(error);
  }
}

async function execute(
  invocation: Invocation,
  io: Io,
  colors: boolean,
): Promise<{ outcome: Outcome; exitCode: number }> {
  let settings: Promise<Settings> | undefined;
  let client: Promise<DSecClient> | undefined;
  const context = {
    io,
    format: invocation.format,
    settings: () => (settings ??= loadSettings(invocation.globals, io.env)),
    client: () => (client ??= connect(context.settings)),
  };
  try {
    const outcome = await invocation.verb.run(context, invocation.given, invocation.operands);
    const paint = painter(colors && wantsColors(isTerminal(io.stdout), io.env));
    const format = (outcome.type === "listing" ? outcome.format : undefined) ?? invocation.format;
    await print(outcome, io, { format, paint });
    return { outcome, exitCode: exitCodeOf(outcome) };
  } finally {
    await (await client?.catch(() => undefined))?.close();
  }
}

async function connect(settings: () => Promise<Settings>): Promise<DSecClient> {
  const [{ connectClient }, resolved] = await Promise.all([import("./connect-client.ts"), settings()]);
  return connectClient(resolved);
}

function exitCodeOf(outcome: Outcome): number {
  if (outcome.type === "exit") return outcome.code;
  return outcome.type === "listing" ? (outcome.exitCode ?? 0) : 0;
}

function terminalOf(io: Io): Omit<Terminal, "formatKnown"> {
  const { stdout } = io;
  const width = "columns" in stdout && typeof stdout.columns === "number" ? stdout.columns : undefined;
  return { width, writeOut: (text) => void write(stdout, text) };
}
