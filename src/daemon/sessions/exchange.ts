import type { GuestExit, OutputSink, OutputStream } from "../../agent/guest.ts";
import { EndMarkerScanner } from "./end-marker.ts";

/** Output before it is known to be wanted, and after it is not. */
export const discard: OutputSink = () => undefined;

/** The number that the marker carried, or the shell's own end. */
export type ExchangeEnd = { readonly status: number } | { readonly exit: GuestExit };

/** One script's output, up to its marker on both streams or to the shell's end. */
export class Exchange {
  /** Resolves when all output is consumed on both streams. Rejects when the shell is lost. */
  readonly ended: Promise<ExchangeEnd>;
  readonly bytes = { stdout: 0, stderr: 0 };
  /** Why the sink takes no more. */
  failure: Error | undefined;
  readonly #scanners: Record<OutputStream, EndMarkerScanner | undefined>;
  readonly #settle: { resolve(end: ExchangeEnd): void; reject(error: unknown): void };
  readonly #onFailure: () => void;
  #sink: OutputSink;
  #consuming = false;

  /** @param onFailure called once when the sink has failed; what follows is dropped */
  constructor(nonce: string, sink: OutputSink, onFailure: () => void) {
    this.#scanners = { stdout: new EndMarkerScanner(nonce), stderr: new EndMarkerScanner(nonce) };
    this.#sink = sink;
    this.#onFailure = onFailure;
    const { promise, resolve, reject } = Promise.withResolvers<ExchangeEnd>();
    this.ended = promise;
    this.ended.catch(() => undefined);
    this.#settle = { resolve, reject };
  }

  /** Whether output waits for its reader, which nothing can overtake. */
  get isConsuming(): boolean {
    return this.#consuming;
  }

  /** Takes what the shell wrote. The promise is that of the sink. */
  output(stream: OutputStream, chunk: Buffer): void | Promise<void> {
    const scanner = this.#scanners[stream];
    if (scanner === undefined) return undefined;
    const { output, status } = scanner.push(chunk);
    const consumed = this.#pass(stream, output);
    if (status === undefined) return consumed;
    if (consumed === undefined) this.#end(stream, status);
    else return consumed.then(() => this.#end(stream, status));
    return undefined;
  }

  /** No more comes. What was held back as a possible marker was none. */
  async shellEnded(exit: GuestExit): Promise<void> {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#scanners[stream]?.rest();
      if (rest !== undefined) await this.#pass(stream, rest);
    }
    this.#settle.resolve({ exit });
  }

  shellLost(error: unknown): void {
    this.#settle.reject(error);
  }

  #pass(stream: OutputStream, output: Buffer): Promise<void> | undefined {
    if (output.length === 0) return undefined;
    const offset = this.bytes[stream];
    this.bytes[stream] += output.length;
    try {
      const consumed = this.#sink(stream, offset, output);
      if (!consumed) return undefined;
      this.#consuming = true;
      return consumed.catch((error: unknown) => this.#fail(error)).finally(() => (this.#consuming = false));
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }

  #fail(error: unknown): void {
    if (this.#sink === discard) return;
    this.#sink = discard;
    this.failure = error instanceof Error ? error : new Error(String(error));
    this.#onFailure();
  }

  #end(stream: OutputStream, status: number): void {
    this.#scanners[stream] = undefined;
    if (this.#scanners.stdout === undefined && this.#scanners.stderr === undefined)
      this.#settle.resolve({ status });
  }
}
