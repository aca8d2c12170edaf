import { DSecError } from "../protocol/errors.ts";
import { value } from "./option.ts";

/** ctrl-p ctrl-q, as docker has it. */
export const usualDetachKeys: Uint8Array = Uint8Array.of(0x10, 0x11);

/** @param usually what holds without it, for the help */
export function detachKeysOption(usually: string) {
  return value("--detach-keys <keys>", `keys that leave it running; ${usually}`, parseDetachKeys);
}

/**
 * Reads keys as docker writes them: `ctrl-p,ctrl-q`, `ctrl-a,d`; nothing means that no keys leave a command.
 * @throws DSecError `invalid_argument`
 */
export function parseDetachKeys(text: string): Uint8Array {
  if (text === "") return new Uint8Array(0);
  return Uint8Array.from(text.split(","), (key) => {
    const [, control] = /^ctrl-([a-z@[\\\]^_])$/.exec(key) ?? [];
    // as the keyboard: the letter's five low bits
    if (control !== undefined) return control.toUpperCase().charCodeAt(0) & 0x1f;
    if (/^[!-~]$/.test(key)) return key.charCodeAt(0);
    throw new DSecError(
      "invalid_argument",
      `${JSON.stringify(key)} is no key: a character, or ctrl- and one of a-z @ [ \\ ] ^ _; keys are separated by commas`,
    );
  });
}

/** Finds the keys that leave a command in what is typed. The beginning of them is held back until the next key is known. */
export class DetachKeys {
  readonly #keys: Uint8Array;
  /** How many of the keys were typed last. */
  #held = 0;

  constructor(keys: Uint8Array) {
    this.#keys = keys;
  }

  /** What goes to the command, and whether the keys were typed; what follows them is dropped. */
  read(typed: Uint8Array): { readonly forward: Uint8Array; readonly detach: boolean } {
    const [first] = this.#keys;
    if (first === undefined || (this.#held === 0 && !typed.includes(first)))
      return { forward: typed, detach: false };
    const forward: number[] = [];
    for (const key of typed) {
      this.#advance(key, forward);
      if (this.#held === this.#keys.length) return { forward: Uint8Array.from(forward), detach: true };
    }
    return { forward: Uint8Array.from(forward), detach: false };
  }

  /** Holds back the longest end of what was typed that the keys begin with; what comes before it goes on. */
  #advance(key: number, forward: number[]): void {
    const pending = [...this.#keys.subarray(0, this.#held), key];
    while (!pending.every((byte, index) => byte === this.#keys[index])) forward.push(...pending.splice(0, 1));
    this.#held = pending.length;
  }
}
