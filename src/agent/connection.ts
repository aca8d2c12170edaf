import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { dial } from "./dial-stream.ts";
import { agentError, agentLost } from "./agent-error.ts";
import { ExecChannel, type ExecChannelOptions } from "./exec-channel.ts";
import { encodeExec, execError } from "./exec-request.ts";
import { AgentFiles } from "./files.ts";
import { allocFrame, encodeFrame, PADDING, PAYLOAD_AT, writeOffset } from "./frame.ts";
import { FrameType, PROTOCOL_VERSION, WINDOW_DEFAULT } from "./frame.ts";
import type { Guest, GuestExec, GuestExecSpec, GuestFiles, LiveExec, OutputSink } from "./guest.ts";
import { type Channel, Link } from "./link.ts";

export interface AgentConnectionOptions {
  /** Whether the stream has no connections of its own, so that what an earlier host wrote may still be in it. */
  readonly resync: boolean;
  /** Ends the handshake, e.g. at a deadline. Has no effect afterwards. */
  readonly signal: AbortSignal;
  /** Bytes per stream that may be under way or unconsumed; 32 KiB to 4 MiB, default 128 KiB. */
  readonly window?: number;
  /** Channel numbers below are not used, as an earlier connection may have used them. The agent says so, too. */
  readonly firstChannel?: number;
}

const NONCE = 16;
const RECORD = 41;
const HELLO_ACK_PREFIX = 24;

/** Channel 0: the greeting and pings. */
class Control implements Channel {
  readonly hello = Promise.withResolvers<Buffer>();
  readonly pings: { resolve: () => void; reject: (error: Error) => void }[] = [];

  onFrame(type: number, payload: Buffer): void {
    if (type === FrameType.helloAck) this.hello.resolve(payload);
    else if (type === FrameType.pong) this.pings.shift()?.resolve();
  }

  onBatchEnd(): void {}

  onLost(error: Error): void {
    this.hello.reject(error);
    for (const { reject } of this.pings) reject(error);
  }
}

function readLive(helloAck: Buffer): LiveExec[] {
  const live: LiveExec[] = [];
  for (let at = HELLO_ACK_PREFIX; at + RECORD <= helloAck.length; at += RECORD) {
    live.push({
      channel: helloAck.readUInt32LE(at),
      state: helloAck[at + 4] === 1 ? "exited" : "running",
      pid: helloAck.readUInt32LE(at + 5),
    });
  }
  return live;
}

/** A connection to a sandbox's agent over any byte stream. */
export class AgentConnection implements Guest {
  readonly live: readonly LiveExec[];
  readonly files: GuestFiles;
  readonly closed: Promise<void>;
  readonly #link: Link;
  readonly #control: Control;
  readonly #window: number;

  /**
   * Takes the stream over and greets the agent. An earlier connection to it ends.
   *
   * @throws DSecError `agent_lost` when the stream ends first, `protocol_error` when something else answers, `cancelled`
   *   when the signal fires.
   */
  static async open(stream: Duplex, options: AgentConnectionOptions): Promise<AgentConnection> {
    const { signal } = options;
    const control = new Control();
    const nonce = randomBytes(NONCE);
    const link = new Link(stream, nonce, control);
    const onAbort = (): void => {
      const message = "the agent did not answer in time";
      link.lose(new DSecError("cancelled", message, { cause: signal.reason }));
    };
    signal.addEventListener("abort", onAbort);
    try {
      if (signal.aborted) onAbort();
      // Nothing more would be told of it.
      if (stream.destroyed) link.lose(agentLost(stream.errored ?? undefined));
      if (options.resync) link.send(Buffer.alloc(PADDING));
      const frame = allocFrame(FrameType.hello, 0, 4 + NONCE);
      frame.writeUInt32LE(PROTOCOL_VERSION, PAYLOAD_AT);
      frame.set(nonce, PAYLOAD_AT + 4);
      link.send(frame);
      const helloAck = await control.hello.promise;
      const version = helloAck.readUInt32LE(0);
      if (version !== PROTOCOL_VERSION) {
        const error = new DSecError(
          "protocol_error",
          `the sandbox's agent speaks protocol version ${version}`,
        );
        link.lose(error);
        throw error;
      }
      link.skipTo(Math.max(helloAck.readUInt32LE(4 + NONCE), (options.firstChannel ?? 1) - 1));
      return new AgentConnection(link, control, readLive(helloAck), options.window ?? WINDOW_DEFAULT);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  private constructor(link: Link, control: Control, live: readonly LiveExec[], window: number) {
    this.#link = link;
    this.#control = control;
    this.#window = window;
    this.live = live;
    this.closed = link.closed;
    this.files = new AgentFiles(link);
  }

  async exec(spec: GuestExecSpec, sink: OutputSink): Promise<GuestExec> {
    const channel = this.#link.allocate();
    const request = encodeExec(channel, spec, this.#window);
    const exec = new ExecChannel(this.#link, channel, sink, {
      window: this.#window,
      refused: (failure) => execError(spec, failure),
    });
    this.#link.attach(channel, exec);
    this.#link.send(request);
    return exec.started;
  }

  async resume(
    channel: number,
    offsets: { stdout: number; stderr: number },
    sink: OutputSink,
  ): Promise<GuestExec> {
    const subject = { sentence: `cannot resume exec ${channel}`, details: { channel } };
    const options: ExecChannelOptions = {
      window: this.#window,
      refused: (failure) => agentError(failure, subject),
      resumeFrom: offsets,
    };
    const exec = new ExecChannel(this.#link, channel, sink, options);
    this.#link.attach(channel, exec);
    const frame = allocFrame(FrameType.resume, channel, 16);
    writeOffset(frame, PAYLOAD_AT, offsets.stdout);
    writeOffset(frame, PAYLOAD_AT + 8, offsets.stderr);
    this.#link.send(frame);
    return exec.started;
  }

  async dial(port: number, host?: string): Promise<Duplex> {
    return dial(this.#link, this.#window, port, host);
  }

  async ping(): Promise<void> {
    this.#link.check();
    await new Promise<void>((resolve, reject) => {
      this.#control.pings.push({ resolve, reject });
      this.#link.send(encodeFrame(FrameType.ping, 0, Buffer.alloc(8)));
    });
  }

  close(): void {
    this.#link.lose(agentLost());
  }
}
