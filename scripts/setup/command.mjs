import { spawn } from "node:child_process";
import { constants } from "node:os";
import { createInterface } from "node:readline";
import { projectEnv, projectRoot } from "./project.mjs";

const KEPT_LINES = 30;

export class CommandFailed extends Error {
  /**
   * @param {string} summary
   * @param {string} output the last lines of what the command printed, empty if they went to the terminal
   */
  constructor(summary, output) {
    super(summary);
    this.output = output;
  }
}

/**
 * Runs a command in the project's directory to its end.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, shown?: boolean }} [options] `shown`: to the terminal (the child's stdout
 *   too goes to stderr, which is where progress belongs); otherwise the output is kept for the error alone
 */
export async function runCommand(command, args, { env = {}, shown = false } = {}) {
  const child = spawn(command, args, {
    cwd: projectRoot,
    env: { ...projectEnv, ...env },
    stdio: ["ignore", shown ? process.stderr : "pipe", shown ? process.stderr : "pipe"],
  });
  /** @type {string[]} */
  let lines = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (/** @type {string} */ text) => {
      const last = lines.pop() ?? "";
      lines = [...lines, ...(last + text).split("\n")].slice(-KEPT_LINES);
    });
  }
  /** @type {string} */
  const end = await new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("close", (code, signal) => resolve(signal ?? String(code)));
  });
  if (end !== "0") {
    throw new CommandFailed(`${[command, ...args].join(" ")} ended with ${end}`, lines.join("\n").trim());
  }
}

/**
 * Runs a command on this terminal and returns its exit code.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {(line: string) => void} [onErrorLine] is given what the command prints on stderr, which goes on to the terminal
 * @returns {Promise<number>} 128 + N when signal N ended it, 127 when it could not be started
 */
export async function runOnTerminal(command, args, onErrorLine) {
  const child = spawn(command, args, {
    cwd: projectRoot,
    env: projectEnv,
    stdio: ["inherit", "inherit", onErrorLine === undefined ? "inherit" : "pipe"],
  });
  if (child.stderr && onErrorLine) {
    child.stderr.pipe(process.stderr, { end: false });
    createInterface({ input: child.stderr }).on("line", onErrorLine);
  }
  return new Promise((resolve) => {
    child.once("error", (error) => {
      process.stderr.write(`${command}: ${error.message}\n`);
      resolve(127);
    });
    child.once("close", (code, signal) => resolve(code ?? 128 + constants.signals[signal ?? "SIGTERM"]));
  });
}
