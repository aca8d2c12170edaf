const ctrlP = 0x10;
const ctrlQ = 0x11;

/** Finds ctrl-p ctrl-q in what is typed, as docker does. A ctrl-p is held back until the next key is known. */
export class DetachKeys {
  #held = false;

  /** What goes to the command, and whether the sequence was typed; what follows it is dropped. */
  read(typed: Uint8Array): { readonly forward: Uint8Array; readonly detach: boolean } {
    const forward: number[] = [];
    for (const key of typed) {
      if (this.#held && key === ctrlQ) return { forward: Uint8Array.from(forward), detach: true };
      if (this.#held) forward.push(ctrlP);
      this.#held = key === ctrlP;
      if (!this.#held) forward.push(key);
    }
    return { forward: Uint8Array.from(forward), detach: false };
  }
}
