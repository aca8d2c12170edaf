import { DSecError } from "../protocol/errors.ts";
import { agentError, readFailure, type Subject } from "./agent-error.ts";
import { FileResults } from "./file-record.ts";
import { allocFrame, CONTENT_WINDOW, encodeFrame, FrameType } from "./frame.ts";
import { PAYLOAD_AT, readOffset, writeOffset } from "./frame.ts";
import type { ContentSink, GuestFileInfo } from "./guest.ts";
import type { Channel, Link } from "./link.ts";
import { StdinWindow } from "./stdin-window.ts";

/** Bytes of descriptions, e.g. of a directory's entries, that one operation may bring: a sandbox can make millions. */
const MOST_RESULTS = 33_554_432;

/** What a file operation does with what comes back. */
export interface FileChannelOptions {
  readonly subject: Subject;
  readonly onContent?: ContentSink;
  /** Gets the description, before the content. */
  readonly begun?: ((info: GuestFileInfo) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Bytes of content under way at most, as asked for; {@link CONTENT_WINDOW} unless that was said. */
  readonly contentWindow?: number;
}

/** One file operation. The agent ends it with EXIT or ERROR, except when the host releases it before. */
export class FileChannel implements Channel {
  readonly content: StdinWindow;
  readonly results = new FileResults();
  readonly #link: Link;
  readonly #number: number;
  readonly #options: FileChannelOptions;
  readonly #started = Promise.withResolvers<void>();
  readonly #done = Promise.withResolvers<void>();
  #consumed = 0;
  #isOver = false;
  #acknowledged = 0;
  /** What the consumer still works at; the end waits for it. */
  #consuming: Promise<void> | undefined;

  constructor(link: Link, number: number, options: FileChannelOptions) {
    this.#link = link;
    this.#number = number;
    this.#options = options;
    this.content = new StdinWindow(link, number, {
      window: options.contentWindow ?? CONTENT_WINDOW,
      keeps: true,
    });
    // Only writes wait for the start, and their end fails in the same way.
    this.#started.promise.catch(() => {});
    this.#done.promise.catch(() => {});
    const { signal } = options;
    if (signal === undefined) return;
    const abort = (): void => this.fail(asError(signal.reason));
    signal.addEventListener("abort", abort, { once: true });
    const settled = (): void => signal.removeEventListener("abort", abort);
    this.#done.promise.then(settled, settled);
  }

  /** A write's temporary file is there. */
  get started(): Promise<void> {
    return this.#started.promise;
  }

  get done(): Promise<void> {
    return this.#done.promise;
  }

  /** Nothing is sent or received any more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  onFrame(type: number, payload: Buffer): void {
    switch (type) {
      case FrameType.started:
        this.#started.resolve();
        break;
      case FrameType.fileResult:
        this.#describe(payload);
        break;
      case FrameType.data:
        this.#accept(payload.subarray(9), readOffset(payload, 1) + payload.length - 9);
        break;
      case FrameType.stdinAck:
        this.content.acknowledge(readOffset(payload, 0));
        break;
      case FrameType.exit:
        this.#end();
        break;
      case FrameType.error:
        this.fail(agentError(readFailure(payload), this.#subject(), "file_error"), false);
        break;
      default:
    }
  }

  onBatchEnd(): void {
    if (this.#acknowledged === this.#consumed) return;
    this.#acknowledged = this.#consumed;
    const frame = allocFrame(FrameType.ack, this.#number, 9);
    frame[PAYLOAD_AT] = 1;
    writeOffset(frame, PAYLOAD_AT + 1, this.#consumed);
    this.#link.send(frame);
  }

  onLost(error: Error): void {
    this.fail(error, false);
  }

  /** Ends it here, and inside unless the agent has ended it. */
  fail(error: Error, release = true): void {
    if (this.#link.forget(this.#number) && release) {
      this.#link.send(encodeFrame(FrameType.release, this.#number));
    }
    this.#isOver = true;
    this.content.drop();
    this.#started.reject(error);
    this.#done.reject(error);
  }

  #describe(payload: Buffer): void {
    const isFirst = this.results.records.length === 0;
    this.results.add(payload);
    if (this.results.bytes > MOST_RESULTS) {
      const { sentence, details } = this.#subject();
      const message = `${sentence}: its entries take more than ${MOST_RESULTS} bytes`;
      this.fail(new DSecError("output_too_large", message, { details }));
      return;
    }
    const [info] = this.results.records;
    if (isFirst && info !== undefined) this.#options.begun?.(info);
  }

  #subject(): Subject {
    const { subject } = this.#options;
    const entry = this.results.entry?.toString();
    if (entry === undefined) return subject;
    return { sentence: `${subject.sentence}: ${entry}`, details: { ...subject.details, entry } };
  }

  #accept(chunk: Buffer, end: number): void {
    if (this.#consuming) {
      this.#wait(this.#consuming.then(() => this.#consume(chunk, end)));
      return;
    }
    try {
      const consuming = this.#consume(chunk, end);
      if (consuming) this.#wait(consuming);
    } catch (error) {
      this.fail(asError(error));
    }
  }

  #consume(chunk: Buffer, end: number): Promise<void> | undefined {
    const consuming = this.#options.onContent?.(chunk);
    if (consuming) return consuming.then(() => this.#consumedUpTo(end));
    this.#consumedUpTo(end);
    return undefined;
  }

  #wait(consuming: Promise<void>): void {
    this.#consuming = consuming;
    consuming.then(
      () => {
        if (this.#consuming === consuming) this.#consuming = undefined;
      },
      (error: unknown) => this.fail(asError(error)),
    );
  }

  #consumedUpTo(end: number): void {
    this.#consumed = end;
    this.#link.afterBatch(this);
  }

  #end(): void {
    this.#link.forget(this.#number);
    this.#isOver = true;
    this.content.drop();
    this.#started.resolve();
    this.#done.resolve(this.#consuming);
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new DSecError("internal", String(error));
}
