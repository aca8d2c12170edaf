import { CommandFailed } from "./command.mjs";

const HEARTBEAT_MS = 20_000;

export class StepFailed extends Error {
  /**
   * @param {string} title
   * @param {string} byHand the command that does the step by hand
   * @param {unknown} cause
   */
  constructor(title, byHand, cause) {
    super(`step failed: ${title}`, { cause });
    this.byHand = byHand;
  }
}

/** @param {string} line */
export function say(line) {
  process.stderr.write(`${line}\n`);
}

/**
 * Runs one named step, with its time and a sign of life on stderr.
 *
 * @template T
 * @param {string} title
 * @param {string} byHand the command to name when it fails
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function step(title, byHand, work) {
  const started = performance.now();
  const elapsed = () => `${((performance.now() - started) / 1000).toFixed(1)} s`;
  say(`• ${title} …`);
  const heartbeat = setInterval(() => say(`  ${title}: still working, ${elapsed()}`), HEARTBEAT_MS);
  try {
    const result = await work();
    say(`✓ ${title} (${elapsed()})`);
    return result;
  } catch (error) {
    throw new StepFailed(title, byHand, error);
  } finally {
    clearInterval(heartbeat);
  }
}

/**
 * Runs a whole script: a failed step is explained, with the command to run by hand.
 *
 * @param {() => Promise<number>} main returns the exit code
 */
export async function runScript(main) {
  try {
    process.exitCode = await main();
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
    say(`✗ ${error.message}`);
    if (error.cause instanceof CommandFailed && error.cause.output) {
      say(error.cause.output.replace(/^/gm, "    | "));
    }
    say(`  ${error.cause instanceof Error ? error.cause.message : String(error.cause)}`);
    say(`  To do this step by hand: ${error.byHand}`);
    process.exitCode = 1;
  }
}
