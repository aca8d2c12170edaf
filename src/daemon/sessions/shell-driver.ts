import { markerFormat } from "./end-marker.ts";
import type { Env } from "../exec/exec-defaults.ts";

/** A signal nobody else uses: the shell's trap on it gives up the command that runs. */
export const abortSignal = 58;

/** What is written to a shell for one command. */
export interface Script {
  readonly text: string;
  /** Whether {@link abortSignal} makes the shell give up this command and nothing else. */
  readonly abortable: boolean;
}

/**
 * How a kind of shell is driven by what is written to its stdin. Each script ends with a marker (end-marker.ts) that carries a
 * number, on both streams.
 */
export interface ShellDriver {
  readonly argv: readonly string[];
  /** Sets the shell up. The number it answers is handed to {@link command} as `level`. */
  prologue(nonce: string): string;
  /** Runs `command` in the shell itself; the number is its exit status. */
  command(command: string, env: Env, level: number, nonce: string): Script;
  /** Goes to a directory for one command; 0 when that is possible. */
  readonly enter: (directory: string, nonce: string) => string;
  /** Comes back from it; 0 when that is possible. */
  readonly leave: (nonce: string) => string;
  /** To be written right after the signal. */
  readonly afterAbort: string;
}

/*
 * The driver's own lines have the real streams as 8 and 9, and 1 and 2 lead nowhere, so that `set -x` and traps do not show
 * them. A command gets the real ones as 1 and 2 and does not see 8 and 9; whatever it does to its streams is undone
 * after it. An EXIT trap runs when that is undone already, and writes where it should. The empty line in front is for bash,
 * which after an open quote in `eval` would not know the next brace for one.
 */
export function apart(lines: string): string {
  return `\n{ ${lines}\n} 8>&1 9>&2 >/dev/null 2>&1\n`;
}

export const commandStreams = ">&8 2>&9 8>&- 9>&-";

/** A word that stands for exactly `text` in every shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Whether a command may have told its shell to run nothing any more (`set -n`): then it meets no trap either. */
export function mayEndExecution(command: string): boolean {
  return /\bset\s[^;&|\n]*(?:-[A-Za-z]*n|\bnoexec\b)/.test(command);
}

/** Variables set for one command alone: put back by the shell itself, with their export mark. `word` quotes. */
export function withEnv(env: Env, command: string, word = quoted): string {
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${word(value)} `);
  // what the shell says about a variable that is read-only is the command's to see
  return assignments.length === 0 ? command : `{ ${assignments.join("")}${command};} 2>&9`;
}

/** What the kinds of shell share, by the builtin that one of them calls builtins with. */
export function scriptsBy(builtin: string): {
  /** A trap that does `then` when a command runs: at other times the driver's variable is set. */
  readonly trapWhileRunning: (then: string) => string;
  readonly report: (nonce: string) => string;
  readonly enter: ShellDriver["enter"];
  readonly leave: ShellDriver["leave"];
} {
  const call = `\\${builtin}`;
  /*
   * Prints the marker with the number in `__dsec`. A function that took the name of the one builtin all this relies on is
   * dropped first. A shell that cannot say how a command ended must not go on.
   */
  const report = (nonce: string): string => {
    const print = `${call} printf '${markerFormat(nonce)}' "$__dsec"`;
    return `\\unset -f ${builtin};${print} >&8&&${print} >&9||\\exit 120`;
  };
  return {
    report,
    trapWhileRunning: (then) =>
      `${call} trap ${quoted(`case \${__dsec-running} in running) ${then};;esac`)} ${abortSignal}`,
    enter(directory, nonce) {
      const go = `if ${call} cd -- ${quoted(directory)};then __dsec=0;else __dsec=1;fi`;
      return apart(`__dsec_pwd=$PWD __dsec_oldpwd=\${OLDPWD-};${go};${report(nonce)}`);
    },
    leave(nonce) {
      const go = `if ${call} cd -- "$__dsec_pwd";then OLDPWD=$__dsec_oldpwd __dsec=0;else __dsec=1;fi`;
      return apart(`${go};\\unset -v __dsec_pwd __dsec_oldpwd;${report(nonce)}`);
    },
  };
}
