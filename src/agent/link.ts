import type { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { agentLost } from "./agent-error.ts";
import { FrameParser } from "./frame.ts";

/** One exec, dial or file operation, as the link sees it. */
export interface Channel {
  onFrame(type: number, payload: Buffer): void;
  /** All frames that arrived together have been handled; called after {@link Link.afterBatch}. */
  onBatchEnd(): void;
  /** The connection is gone. */
  onLost(error: Error): void;
}

/** Frames over a byte stream, by channel. Goes one way: open → lost. */
export class Link {
  readonly closed: Promise<void>;
  readonly #stream: Duplex;
  readonly #parser: FrameParser;
  readonly #channels = new Map<number, Channel>();
  readonly #batch = new Set<Channel>();
  #nextChannel = 1;
  #corked = false;
  #lost: Error | undefined;

  /** `control` gets the connection's own frames, and its loss. `nonce` marks where the agent's frames begin. */
  constructor(stream: Duplex, nonce: Buffer, control: Channel) {
    this.#stream = stream;
    this.#channels.set(0, control);
    this.#parser = new FrameParser(nonce, (type, channel, payload) => {
      this.#channels.get(channel)?.onFrame(type, payload);
    });
    this.closed = new Promise((resolve) => stream.once("close", resolve));
    stream.on("data", (chunk: Buffer) => this.#onData(chunk));
    stream.on("error", (error) => this.lose(agentLost(error)));
    stream.once("end", () => this.lose(agentLost()));
    stream.once("close", () => this.lose(agentLost()));
  }

  /** Channel numbers up to `highest` were used before. */
  skipTo(highest: number): void {
    this.#nextChannel = highest + 1;
  }

  /** A channel number that was never used in the agent's life. */
  allocate(): number {
    return this.#nextChannel++;
  }

  /** @throws DSecError `agent_lost`, not ambiguous since nothing was sent, when the connection is gone. */
  check(): void {
    if (!this.#lost) return;
    const options = { cause: this.#lost };
    throw new DSecError("agent_lost", "there is no connection to the sandbox's agent", options);
  }

  /** @throws as {@link check} */
  attach(number: number, channel: Channel): void {
    this.check();
    this.#channels.set(number, channel);
  }

  /** Frames of `channel` are ignored from now on. False when that was so already. */
  forget(channel: number): boolean {
    return this.#channels.delete(channel);
  }

  /** What is sent in one tick leaves in one write. */
  send(frame: Uint8Array): void {
    if (this.#lost) return;
    if (!this.#corked) {
      this.#corked = true;
      this.#stream.cork();
      process.nextTick(() => {
        this.#corked = false;
        this.#stream.uncork();
      });
    }
    this.#stream.write(frame);
  }

  /** Calls the channel's `onBatchEnd` once all frames that arrived together have been handled. */
  afterBatch(channel: Channel): void {
    if (this.#batch.size === 0) queueMicrotask(() => this.#endBatch());
    this.#batch.add(channel);
  }

  /** The connection ends, for this reason. */
  lose(error: Error): void {
    if (this.#lost) return;
    this.#lost = error;
    for (const channel of this.#channels.values()) channel.onLost(error);
    this.#channels.clear();
    this.#stream.destroy();
  }

  #onData(chunk: Buffer): void {
    try {
      this.#parser.push(chunk);
    } catch (cause) {
      const options = { cause, ambiguous: true };
      this.lose(
        new DSecError("protocol_error", "the sandbox's agent sent what is not its protocol", options),
      );
    }
  }

  #endBatch(): void {
    const channels = [...this.#batch];
    this.#batch.clear();
    for (const channel of channels) channel.onBatchEnd();
  }
}
