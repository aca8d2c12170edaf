import type { Io } from "./io.ts";
import { isTerminal } from "./io.ts";
import { printable } from "./printable.ts";
import { formatSize } from "./size.ts";

/** How far a copy has got. */
export interface Progress {
  readonly bytes: number;
  readonly totalBytes?: number | undefined;
}

/** Milliseconds between two updates of the line. */
const pauseMs = 100;
const barLength = 24;
const clearLine = "\r\u001b[K";

/** One line on a terminal that says how far a copy has got; nothing where stderr is none. */
export class ProgressLine {
  readonly #io: Io;
  readonly #shown: boolean;
  readonly #label: string;
  readonly #beganAt: number;
  #shownAt = 0;
  #bytes = 0;

  /** @param label stands before it */
  constructor(io: Io, wanted: boolean, label = "") {
    this.#io = io;
    this.#label = label;
    this.#shown = wanted && isTerminal(io.stderr);
    this.#beganAt = io.now();
  }

  readonly update = (progress: Progress): void => {
    this.#bytes = progress.bytes;
    const now = this.#io.now();
    if (!this.#shown || now - this.#shownAt < pauseMs) return;
    this.#shownAt = now;
    this.#io.stderr.write(`${clearLine}${this.#label}${progressText(progress, now - this.#beganAt)}`);
  };

  /** The line goes. */
  clear(): void {
    if (this.#shownAt > 0) this.#io.stderr.write(clearLine);
  }

  /** `1.5G in 3.2 s, 480M/s` */
  summary(bytes = this.#bytes): string {
    const seconds = (this.#io.now() - this.#beganAt) / 1000;
    return `${formatSize(bytes)} in ${seconds.toFixed(1)} s${rateText(bytes, seconds * 1000)}`;
  }
}

/** One line on a terminal that says what is waited for; nothing where stderr is none. */
export class StatusLine {
  readonly #io: Io;
  #shown = "";

  constructor(io: Io) {
    this.#io = io;
  }

  update(text: string): void {
    if (!isTerminal(this.#io.stderr) || text === this.#shown) return;
    this.#shown = text;
    // a line that wraps could not be taken back
    const { columns = 80 } = this.#io.stderr as { readonly columns?: number };
    this.#io.stderr.write(`${clearLine}${printable(text).slice(0, Math.max(0, columns - 1))}`);
  }

  /** The line goes. */
  clear(): void {
    if (this.#shown !== "") this.#io.stderr.write(clearLine);
    this.#shown = "";
  }
}

/** `[======>     ] 45%  460M of 1.0G, 230M/s, 2 s left`; without a total only what is known. */
export function progressText({ bytes, totalBytes }: Progress, elapsedMs: number): string {
  const rate = rateText(bytes, elapsedMs);
  if (totalBytes === undefined || totalBytes === 0) return `${formatSize(bytes)}${rate}`;
  const part = Math.min(1, bytes / totalBytes);
  const filled = Math.round(part * barLength);
  const bar = `${"=".repeat(filled)}${filled < barLength ? ">" : ""}`.padEnd(barLength).slice(0, barLength);
  const leftMs = part === 0 ? 0 : (elapsedMs / part) * (1 - part);
  const left = elapsedMs < 1000 ? "" : `, ${Math.ceil(leftMs / 1000)} s left`;
  return `[${bar}] ${Math.floor(part * 100)}%  ${formatSize(bytes)} of ${formatSize(totalBytes)}${rate}${left}`;
}

function rateText(bytes: number, elapsedMs: number): string {
  return elapsedMs < 100 ? "" : `, ${formatSize((bytes / elapsedMs) * 1000)}/s`;
}
