/** Bytes that may wait before a writer has to, as in the agent's protocol. */
const WINDOW = 65_536;

/** The pipe between a caller and a simulated process: a writer waits while more than a window is unread. */
export class StdinPipe {
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  #changed = Promise.withResolvers<void>();

  /** Resolves when the bytes fit the window. Dropped after the end. */
  async write(chunk: Uint8Array): Promise<void> {
    if (this.#ended || chunk.length === 0) return;
    this.#chunks.push(Buffer.from(chunk));
    this.#bytes += chunk.length;
    this.#notify();
    while (this.#bytes > WINDOW) await this.#changed.promise;
  }

  /** The next bytes; undefined at the end. */
  async read(): Promise<Buffer | undefined> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#bytes -= chunk.length;
        this.#notify();
        return chunk;
      }
      if (this.#ended) return undefined;
      await this.#changed.promise;
    }
  }

  /** What was written before can still be read. */
  end(): void {
    this.#ended = true;
    this.#notify();
  }

  /** Nobody reads any more: waiting writers go on, what they wrote is dropped. */
  close(): void {
    this.#chunks.length = 0;
    this.#bytes = 0;
    this.end();
  }

  #notify(): void {
    const changed = this.#changed;
    this.#changed = Promise.withResolvers();
    changed.resolve();
  }
}
