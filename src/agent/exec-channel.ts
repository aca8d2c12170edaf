import { DSecError } from "../protocol/errors.ts";
import { type AgentFailure, readFailure } from "./agent-error.ts";
import { allocFrame, encodeFrame, FrameType, PAYLOAD_AT, readOffset, writeOffset } from "./frame.ts";
import type { GuestExec, GuestExit, OutputSink, SignalScope } from "./guest.ts";
import type { Channel, Link } from "./link.ts";
import { StdinWindow } from "./stdin-window.ts";

const SCOPES = { process: 0, group: 1, tree: 2, begun: 3 } as const;
const TIMED_OUT = 1;

export interface ExecChannelOptions {
  readonly window: number;
  /** The error for what the agent refused. */
  readonly refused: (failure: AgentFailure) => DSecError;
  /** Of an exec that an earlier connection started. */
  readonly resumeFrom?: { readonly stdout: number; readonly stderr: number };
}

interface Output {
  readonly stream: 0 | 1;
  readonly offset: number;
  readonly chunk: Buffer;
}

/**
 * One exec of a connection: starting → running → over. Output goes to the sink chunk by chunk, never two at a time, and
 * is acknowledged when it is consumed.
 */
export class ExecChannel implements Channel, GuestExec {
  readonly channel: number;
  readonly #link: Link;
  readonly #sink: OutputSink;
  readonly #options: ExecChannelOptions;
  readonly #stdin: StdinWindow;
  readonly #started = Promise.withResolvers<GuestExec>();
  readonly #exit = Promise.withResolvers<GuestExit>();
  readonly #consumed: [number, number];
  readonly #acknowledged: [number, number];
  #queue: Output[] = [];
  #consuming = false;
  #pid = 0;
  #state: "starting" | "running" | "over" = "starting";

  constructor(link: Link, channel: number, sink: OutputSink, options: ExecChannelOptions) {
    this.channel = channel;
    this.#link = link;
    this.#sink = sink;
    this.#options = options;
    this.#stdin = new StdinWindow(link, channel);
    this.#consumed = [options.resumeFrom?.stdout ?? 0, options.resumeFrom?.stderr ?? 0];
    this.#acknowledged = [...this.#consumed];
    // Who waits only for the start, or only for the end, need not handle the other.
    this.#exit.promise.catch(() => {});
  }

  get started(): Promise<GuestExec> {
    return this.#started.promise;
  }

  get exit(): Promise<GuestExit> {
    return this.#exit.promise;
  }

  get pid(): number {
    return this.#pid;
  }

  write(chunk: Uint8Array): Promise<void> {
    return this.#stdin.write(chunk);
  }

  end(): void {
    this.#stdin.end();
  }

  mark(): void {
    this.signal(0, "begun");
  }

  signal(signal: number, scope: SignalScope): void {
    const frame = allocFrame(FrameType.signal, this.channel, 5);
    frame.writeUInt32LE(signal, PAYLOAD_AT);
    frame[PAYLOAD_AT + 4] = SCOPES[scope];
    this.#link.send(frame);
  }

  resize(rows: number, cols: number): void {
    const frame = allocFrame(FrameType.resize, this.channel, 4);
    frame.writeUInt16LE(rows, PAYLOAD_AT);
    frame.writeUInt16LE(cols, PAYLOAD_AT + 2);
    this.#link.send(frame);
  }

  release(): void {
    if (!this.#link.forget(this.channel)) return;
    this.#link.send(encodeFrame(FrameType.release, this.channel));
    // most have ended, and an error costs as much as all the rest of this
    if (this.#state !== "over")
      this.#fail(new DSecError("cancelled", `exec ${this.channel} was released before it ended`));
  }

  onFrame(type: number, payload: Buffer): void {
    switch (type) {
      case FrameType.started:
        this.#pid = payload.readUInt32LE(0);
        if (this.#options.resumeFrom) this.#stdin.resumeAt(readOffset(payload, 4));
        this.#state = "running";
        this.#started.resolve(this);
        break;
      case FrameType.data:
        this.#accept({
          stream: payload[0] === 2 ? 1 : 0,
          offset: readOffset(payload, 1),
          chunk: payload.subarray(9),
        });
        break;
      case FrameType.stdinAck:
        this.#stdin.acknowledge(readOffset(payload, 0));
        break;
      case FrameType.exit:
        this.#end(payload);
        break;
      case FrameType.error:
        this.#link.forget(this.channel);
        this.#fail(this.#options.refused(readFailure(payload)));
        break;
      default:
    }
  }

  onBatchEnd(): void {
    for (const stream of [0, 1] as const) {
      if (this.#acknowledged[stream] < this.#consumed[stream]) this.#acknowledge(stream);
    }
  }

  onLost(error: Error): void {
    this.#fail(error);
  }

  #accept(output: Output): void {
    if (this.#state === "over") return;
    if (this.#consuming) {
      // Bounded by the window: the agent sends no more than that beyond the last ACK.
      this.#queue.push(output);
      return;
    }
    const pending = this.#consume(output);
    if (!pending) return;
    this.#consuming = true;
    pending.then(
      () => this.#drain(),
      (error: unknown) => this.#fail(error instanceof Error ? error : new Error(String(error))),
    );
  }

  /** The promise of what is not consumed yet, or nothing. */
  #consume(output: Output): Promise<void> | undefined {
    let consumed: void | Promise<void>;
    try {
      consumed = this.#sink(output.stream === 0 ? "stdout" : "stderr", output.offset, output.chunk);
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : new Error(String(error)));
    }
    if (consumed) return consumed.then(() => this.#consumedUpTo(output));
    this.#consumedUpTo(output);
    return undefined;
  }

  async #drain(): Promise<void> {
    try {
      while (this.#queue.length > 0) {
        const batch = this.#queue;
        this.#queue = [];
        for (const output of batch) {
          // Lost or released meanwhile: whoever resumes it has the rest sent again.
          if (this.#state === "over") return;
          await this.#consume(output);
        }
      }
      this.#consuming = false;
      this.onBatchEnd();
    } catch (error) {
      this.#fail(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #consumedUpTo({ stream, offset, chunk }: Output): void {
    const consumed = offset + chunk.length;
    this.#consumed[stream] = consumed;
    if (consumed - this.#acknowledged[stream] >= this.#options.window / 4) this.#acknowledge(stream);
    else this.#link.afterBatch(this);
  }

  #acknowledge(stream: 0 | 1): void {
    const offset = this.#consumed[stream];
    this.#acknowledged[stream] = offset;
    const frame = allocFrame(FrameType.ack, this.channel, 9);
    frame[PAYLOAD_AT] = stream + 1;
    writeOffset(frame, PAYLOAD_AT + 1, offset);
    this.#link.send(frame);
  }

  #end(payload: Buffer): void {
    const signalled = payload[0] === 1;
    const value = payload.readUInt32LE(1);
    this.#state = "over";
    this.#stdin.drop();
    this.#exit.resolve({
      code: signalled ? 128 + value : value,
      ...(signalled ? { signal: value } : {}),
      timedOut: payload[5] === TIMED_OUT,
      stdoutBytes: readOffset(payload, 6),
      stderrBytes: readOffset(payload, 14),
    });
  }

  #fail(error: Error): void {
    if (this.#state === "over") return;
    if (this.#state === "starting") this.#started.reject(error);
    this.#state = "over";
    this.#queue = [];
    this.#stdin.drop();
    this.#exit.reject(error);
  }
}
