const esc = "\u001b";

/** How each mode that a full-screen program or a shell switches on is switched off again. */
const undoing: ReadonlyMap<number, string> = new Map([
  // cursor keys as an application wants them
  [1, `${esc}[?1l`],
  // the cursor: on is what is usual
  [25, `${esc}[?25h`],
  [9, `${esc}[?9l`],
  [1000, `${esc}[?1000l`],
  [1002, `${esc}[?1002l`],
  [1003, `${esc}[?1003l`],
  [1004, `${esc}[?1004l`],
  [1005, `${esc}[?1005l`],
  [1006, `${esc}[?1006l`],
  [1015, `${esc}[?1015l`],
  // bracketed paste
  [2004, `${esc}[?2004l`],
  // the alternate screen, last: what stands before it concerns both
  [47, `${esc}[?47l`],
  [1047, `${esc}[?1047l`],
  [1049, `${esc}[?1049l`],
]);
/** Modes that are on unless switched off. */
const usuallyOn: ReadonlySet<number> = new Set([25]);

/** Bytes of a sequence that has not ended; longer ones are none of those we look for. */
const maxSequence = 64;

/**
 * Follows which modes a program has switched on in the terminal, so that they can be switched off when it is left without
 * having tidied up: a link that broke, detach keys. What it did not touch is left alone.
 */
export class TerminalModes {
  readonly #changed = new Set<number>();
  #keypad = false;
  #colors = false;
  /** The beginning of a sequence whose rest is still to come. */
  #begun = "";

  /** @param output what goes to the terminal, in any pieces */
  follow(output: Buffer): void {
    if (this.#begun === "" && !output.includes(esc)) return;
    const text = this.#begun + output.toString("latin1");
    for (const [sequence, modes, onOff] of text.matchAll(sequences)) {
      if (modes !== undefined) this.#setModes(modes.split(";").map(Number), onOff === "h");
      else if (sequence === `${esc}=` || sequence === `${esc}>`) this.#keypad = sequence === `${esc}=`;
      else if (sequence === `${esc}c`) this.forget();
      else this.#colors = sequence !== `${esc}[m` && sequence !== `${esc}[0m`;
    }
    const [rest = ""] = unfinished.exec(text) ?? [];
    this.#begun = rest.length > maxSequence ? "" : rest;
  }

  /** What to write to the terminal to have it as it was; empty when nothing is to be done. */
  undo(): string {
    const modes = [...undoing].flatMap(([mode, off]) => (this.#changed.has(mode) ? [off] : []));
    const undone = [...modes, this.#keypad ? `${esc}>` : "", this.#colors ? `${esc}[0m` : ""].join("");
    this.forget();
    return undone;
  }

  /** Takes things as they are for what was wanted. */
  forget(): void {
    this.#changed.clear();
    this.#keypad = false;
    this.#colors = false;
    this.#begun = "";
  }

  #setModes(modes: readonly number[], on: boolean): void {
    for (const mode of modes) {
      if (!undoing.has(mode)) continue;
      if (on === usuallyOn.has(mode)) this.#changed.delete(mode);
      else this.#changed.add(mode);
    }
  }
}

/** Private modes on and off, the keypad, a full reset, colours. */
const sequences = new RegExp(String.raw`${esc}(?:\[\?([\d;]+)([hl])|[=>c]|\[[\d;:]*m)`, "g");
const unfinished = new RegExp(String.raw`${esc}(?:\[\??[\d;:]*)?$`);
