import { setTimeout as pause } from "node:timers/promises";
import type { Outcome, Visitor } from "./visitor.ts";

/** Milliseconds between two tries: often enough for any gap, and the machine has others to serve. */
const paceMs = 10;

/** Somebody who tries an address's echo port all the time, until he is stopped. */
export class Trying implements AsyncDisposable {
  readonly outcomes: Outcome[] = [];
  readonly #over = new AbortController();
  readonly #loop: Promise<void>;

  constructor(visitor: Visitor, host: string) {
    this.#loop = this.#try(visitor, host);
  }

  get answered(): Outcome[] {
    return this.outcomes.filter(({ text }) => text !== undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#loop;
  }

  async #try(visitor: Visitor, host: string): Promise<void> {
    while (!this.#over.signal.aborted) {
      this.outcomes.push(await visitor.try({ kind: "tcp", host, port: 7, send: "hello" }));
      await pause(paceMs);
    }
  }
}
