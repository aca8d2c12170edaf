import { spawnSync } from "node:child_process";
import { ReadStream, WriteStream } from "node:tty";
import { DSecError } from "../protocol/errors.ts";
import { isTerminal } from "./io.ts";
import type { Io } from "./io.ts";
import type { TerminalModes } from "./terminal-modes.ts";

export interface TerminalSize {
  readonly rows: number;
  readonly cols: number;
}

/** What a terminal that tells no size is taken for. */
const usualSize: TerminalSize = { rows: 24, cols: 80 };

/** Size of the terminal that output goes to, as it is now. */
export function terminalSize(io: Io): TerminalSize {
  if (!(io.stdout instanceof WriteStream) || io.stdout.destroyed) return usualSize;
  const [cols, rows] = io.stdout.getWindowSize();
  // a terminal that has just been made may say 0 × 0
  return rows > 0 && cols > 0 ? { rows, cols } : usualSize;
}

/** What an exec is told so that it has a terminal like ours. */
export function terminalOf(env: Readonly<Record<string, string>>, io: Io) {
  return { tty: terminalSize(io), env: { TERM: io.env["TERM"] ?? "xterm", ...env } } as const;
}

/**
 * Tells `listener` the window's size now, so that no change is missed, and whenever it may have changed; what is returned takes
 * it back.
 */
export function onResize(io: Io, listener: (size: TerminalSize) => void): () => void {
  const changed = (): void => listener(terminalSize(io));
  io.stdout.on("resize", changed);
  // while we were stopped nobody told us
  process.on("SIGCONT", changed);
  changed();
  return () => {
    io.stdout.off("resize", changed);
    process.off("SIGCONT", changed);
  };
}

/**
 * Makes our terminal the command's; with `raw`, every key goes to it unchanged, Ctrl-C too. What is returned gives the terminal
 * back as it was: its settings, and the `modes` that are still on. So does the end of this process, however it comes about, unless
 * by a signal that cannot be caught.
 */
export function lendTerminal(io: Io, modes: TerminalModes, raw: boolean): () => void {
  const { stdin } = io;
  const keys = raw && stdin instanceof ReadStream ? stdin : undefined;
  const takeBack = (): void => {
    const undo = modes.undo();
    if (undo !== "" && isTerminal(io.stdout)) io.stdout.write(undo);
    keys?.setRawMode(false);
  };
  const resume = (): void => {
    // whoever had the terminal meanwhile has set it up otherwise, behind Node's back
    keys?.setRawMode(false);
    setRaw(keys);
  };
  setRaw(keys);
  process.once("exit", takeBack);
  process.on("SIGCONT", resume);
  return () => {
    process.off("exit", takeBack);
    process.off("SIGCONT", resume);
    takeBack();
  };
}

function setRaw(keys: ReadStream | undefined): void {
  if (keys === undefined) return;
  keys.setRawMode(true);
  // Node leaves the terminal turning line feeds into new lines, which garbles full-screen programs; where there is no
  // stty, that is all that is lost
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}

/** @throws DSecError `invalid_argument` when keys are wanted from what is no terminal */
export function needTerminal(io: Io, wanted: { readonly tty: boolean; readonly stdin: boolean }): void {
  if (wanted.tty && wanted.stdin && !(io.stdin instanceof ReadStream))
    throw new DSecError("invalid_argument", "stdin is not a terminal: leave out -t");
}
