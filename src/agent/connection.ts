import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { agentLost } from "./agent-error.ts";
import { openDial } from "./dial-stream.ts";
import { ExecChannel } from "./exec-channel.ts";
import { encodeExec } from "./exec-request.ts";
import { AgentFiles } from "./files.ts";
import {
  allocFrame,
  encodeFrame,
  FrameParser,
  FrameType,
  PADDING,
  PAYLOAD_AT,
  PROTOCOL_VERSION,
  writeOffset,
} from "./frame.ts";
import type { Guest, GuestExec, GuestExecSpec, GuestFiles, LiveExec, OutputSink } from "./guest.ts";
import type { Channel, Link } from "./link.ts";

export interface AgentConnectionOptions {
  /** Whether the stream has no connections of its own, so that what an earlier host wrote may still be in it. */
  readonly resync: boolean;
  /** Ends the handshake, e.g. at a deadline. Has no effect afterwards. */
  readonly signal: AbortSignal;
  /** Bytes per stream that may be under way or unconsumed; 32 KiB to 4 MiB. */
  readonly window?: number;
}

const NONCE = 16;
const RECORD = 41;
const HELLO_ACK_PREFIX = 24;
const DEFAULT_WINDOW = 131_072;

/** A connection to a sandbox's agent over any byte stream. */
export class AgentConnection implements Guest, Link {
  readonly files: GuestFiles;
  readonly closed: Promise<void>;
  readonly #stream: Duplex;
  readonly #window: number;
  readonly #channels = new Map<number, Channel>();
  readonly #batch = new Set<Channel>();
  readonly #pings: { resolve: () => void; reject: (error: Error) => void }[] = [];
  readonly #hello = Promise.withResolvers<void>();
  readonly #parser: FrameParser;
  #live: readonly LiveExec[] = [];
  #nextChannel = 1;
  #corked = false;
  #lost: Error | undefined;

  /**
   * Takes the stream over and greets the agent. An earlier connection to it ends.
   *
   * @throws DSecError `agent_lost` when the stream ends first, `protocol_error` when something else answers, `cancelled`
   *   when the signal fires.
   */
  static async open(stream: Duplex, options: AgentConnectionOptions): Promise<AgentConnection> {
    const connection = new AgentConnection(stream, options.window ?? DEFAULT_WINDOW);
    const onAbort = () => {
      connection.#onLost(
        new DSecError("cancelled", "the agent's answer was not waited for", { cause: options.signal.reason }),
      );
    };
    options.signal.addEventListener("abort", onAbort);
    try {
      if (options.signal.aborted) onAbort();
      else connection.#greet(options.resync);
      await connection.#hello.promise;
      return connection;
    } finally {
      options.signal.removeEventListener("abort", onAbort);
    }
  }

  readonly #nonce = randomBytes(NONCE);

  private constructor(stream: Duplex, window: number) {
    this.#stream = stream;
    this.#window = window;
    this.#parser = new FrameParser(this.#nonce, (type, channel, payload) =>
      this.#onFrame(type, channel, payload),
    );
    this.files = new AgentFiles(this);
    this.closed = new Promise((resolve) => stream.once("close", resolve));
    stream.on("data", (chunk: Buffer) => this.#onData(chunk));
    stream.on("error", (error) => this.#onLost(agentLost(error)));
    stream.once("end", () => this.#onLost(agentLost()));
    stream.once("close", () => this.#onLost(agentLost()));
  }

  get live(): readonly LiveExec[] {
    return this.#live;
  }

  async exec(spec: GuestExecSpec, sink: OutputSink): Promise<GuestExec> {
    const channel = this.allocate();
    const subject = {
      sentence: `cannot run ${JSON.stringify(spec.argv[0] ?? "")}`,
      details: { command: spec.argv[0], cwd: spec.cwd, user: spec.user },
    };
    const request = encodeExec(channel, spec, this.#window);
    const exec = new ExecChannel(this, channel, sink, { window: this.#window, subject });
    this.attach(channel, exec);
    this.send(request);
    return exec.started;
  }

  async resume(
    channel: number,
    offsets: { stdout: number; stderr: number },
    sink: OutputSink,
  ): Promise<GuestExec> {
    const subject = { sentence: `cannot resume exec ${channel}`, details: { channel } };
    const exec = new ExecChannel(this, channel, sink, { window: this.#window, subject, resumeFrom: offsets });
    this.attach(channel, exec);
    const frame = allocFrame(FrameType.resume, channel, 16);
    writeOffset(frame, PAYLOAD_AT, offsets.stdout);
    writeOffset(frame, PAYLOAD_AT + 8, offsets.stderr);
    this.send(frame);
    return exec.started;
  }

  dial(port: number, host?: string): Promise<Duplex> {
    return openDial(this, port, host);
  }

  ping(): Promise<void> {
    if (this.#lost) return Promise.reject(this.#lost);
    return new Promise((resolve, reject) => {
      this.#pings.push({ resolve, reject });
      this.send(encodeFrame(FrameType.ping, 0, Buffer.alloc(8)));
    });
  }

  close(): void {
    this.#onLost(agentLost());
  }

  /** A channel number that was never used in the agent's life. */
  allocate(): number {
    return this.#nextChannel++;
  }

  /** @throws DSecError `agent_lost` (not ambiguous: nothing was sent) when the connection is gone. */
  attach(number: number, channel: Channel): void {
    if (this.#lost) {
      throw new DSecError("agent_lost", "the connection to the sandbox's agent is gone", {
        cause: this.#lost,
      });
    }
    this.#channels.set(number, channel);
  }

  /** What is sent in one tick leaves in one write. */
  send(frame: Buffer): void {
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

  afterBatch(channel: Channel): void {
    // Between two batches: the consumer took its time.
    if (this.#batch.size === 0) queueMicrotask(() => this.#endBatch());
    this.#batch.add(channel);
  }

  forget(channel: number): boolean {
    return this.#channels.delete(channel);
  }

  #greet(resync: boolean): void {
    if (resync) this.send(Buffer.alloc(PADDING));
    const frame = allocFrame(FrameType.hello, 0, 4 + NONCE);
    frame.writeUInt32LE(PROTOCOL_VERSION, PAYLOAD_AT);
    frame.set(this.#nonce, PAYLOAD_AT + 4);
    this.send(frame);
  }

  #onData(chunk: Buffer): void {
    try {
      this.#parser.push(chunk);
    } catch (error) {
      this.#onLost(
        new DSecError("protocol_error", "the sandbox's agent sent what is not its protocol", {
          cause: error,
          ambiguous: true,
        }),
      );
    }
  }

  #endBatch(): void {
    const channels = [...this.#batch];
    this.#batch.clear();
    for (const channel of channels) channel.onBatchEnd();
  }

  #onFrame(type: number, channel: number, payload: Buffer): void {
    if (channel !== 0) this.#channels.get(channel)?.onFrame(type, payload);
    else if (type === FrameType.helloAck) this.#onHello(payload);
    else if (type === FrameType.pong) this.#pings.shift()?.resolve();
  }

  #onHello(payload: Buffer): void {
    const version = payload.readUInt32LE(0);
    if (version !== PROTOCOL_VERSION) {
      this.#onLost(
        new DSecError("protocol_error", `the sandbox's agent speaks version ${version} of the protocol`),
      );
      return;
    }
    this.#nextChannel = payload.readUInt32LE(4 + NONCE) + 1;
    const live: LiveExec[] = [];
    for (let at = HELLO_ACK_PREFIX; at + RECORD <= payload.length; at += RECORD) {
      live.push({
        channel: payload.readUInt32LE(at),
        state: payload[at + 4] === 1 ? "exited" : "running",
        pid: payload.readUInt32LE(at + 5),
      });
    }
    this.#live = live;
    this.#hello.resolve();
  }

  #onLost(error: Error): void {
    if (this.#lost) return;
    this.#lost = error;
    this.#hello.reject(error);
    for (const channel of this.#channels.values()) channel.onLost(error);
    this.#channels.clear();
    for (const { reject } of this.#pings) reject(error);
    this.#stream.destroy();
  }
}
