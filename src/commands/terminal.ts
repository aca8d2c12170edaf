import { spawnSync } from "node:child_process";
import { ReadStream, WriteStream } from "node:tty";
import { DSecError } from "../protocol/errors.ts";
import type { Io } from "./io.ts";

export interface TerminalSize {
  readonly rows: number;
  readonly cols: number;
}

/** What a terminal that tells no size is taken for. */
const usualSize: TerminalSize = { rows: 24, cols: 80 };

/** Size of the terminal that output goes to. */
export function terminalSize(io: Io): TerminalSize {
  if (!(io.stdout instanceof WriteStream)) return usualSize;
  const { rows, columns } = io.stdout;
  // a terminal that has just been made may say 0 × 0
  return rows > 0 && columns > 0 ? { rows, cols: columns } : usualSize;
}

/** What an exec is told so that it has a terminal like ours. A connection that is lost does not end what runs there, as under docker. */
export function terminalOf(env: Readonly<Record<string, string>>, io: Io) {
  return {
    tty: terminalSize(io),
    env: { TERM: io.env["TERM"] ?? "xterm", ...env },
    onDisconnect: "keep",
  } as const;
}

/** Calls `listener` when the window's size changes; what is returned takes it back. */
export function onResize(io: Io, listener: (size: TerminalSize) => void): () => void {
  const changed = (): void => listener(terminalSize(io));
  io.stdout.on("resize", changed);
  return () => void io.stdout.off("resize", changed);
}

/** Hands every key to the command unchanged, Ctrl-C too; what is returned restores the terminal. */
export function enterRawMode(io: Io): () => void {
  const { stdin } = io;
  if (!(stdin instanceof ReadStream)) return () => undefined;
  stdin.setRawMode(true);
  // Node leaves the terminal turning line feeds into new lines, which garbles full-screen programs; where there is no
  // stty, that is all that is lost
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
  const restore = (): void => void stdin.setRawMode(false);
  // also when this process ends in another way than by returning
  process.once("exit", restore);
  return () => {
    process.off("exit", restore);
    restore();
  };
}

/** @throws DSecError `invalid_argument` when keys are wanted from what is no terminal */
export function needTerminal(io: Io, wanted: { readonly tty: boolean; readonly stdin: boolean }): void {
  if (wanted.tty && wanted.stdin && !(io.stdin instanceof ReadStream))
    throw new DSecError("invalid_argument", "stdin is not a terminal: leave out -t");
}
