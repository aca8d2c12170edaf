import { isIP } from "node:net";
import { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { agentError, errnoName, readFailure } from "./agent-error.ts";
import { Field, FieldWriter } from "./fields.ts";
import { allocFrame, encodeFrame, FrameType, PAYLOAD_AT, readOffset, writeOffset } from "./frame.ts";
import type { Channel, Link } from "./link.ts";
import { StdinWindow } from "./stdin-window.ts";

/**
 * A TCP connection made inside the sandbox, half-open like a socket with `allowHalfOpen`. What was read from it is
 * acknowledged when the reader asks for more, so a slow reader slows the other end.
 */
class DialStream extends Duplex implements Channel {
  readonly connected = Promise.withResolvers<Duplex>();
  readonly #link: Link;
  readonly #number: number;
  readonly #target: string;
  readonly #stdin: StdinWindow;
  #state: "connecting" | "open" | "ended" | "over" = "connecting";
  #received = 0;
  #acknowledged = 0;
  #full = false;

  constructor(link: Link, number: number, target: string) {
    super({ allowHalfOpen: true });
    this.#link = link;
    this.#number = number;
    this.#target = target;
    this.#stdin = new StdinWindow(link, number);
  }

  onFrame(type: number, payload: Buffer): void {
    switch (type) {
      case FrameType.started:
        this.#state = "open";
        this.connected.resolve(this);
        break;
      case FrameType.data:
        this.#received = readOffset(payload, 1) + payload.length - 9;
        this.#full = !this.push(payload.subarray(9));
        if (!this.#full) this.#link.afterBatch(this);
        break;
      case FrameType.stdinAck:
        this.#stdin.acknowledge(readOffset(payload, 0));
        break;
      case FrameType.exit:
        this.#onEnd(payload.readUInt32LE(1));
        break;
      case FrameType.error: {
        const subject = { sentence: `cannot connect to ${this.#target}`, details: { target: this.#target } };
        this.#link.forget(this.#number);
        this.#lose(agentError(readFailure(payload), subject, "port_refused"));
        break;
      }
      default:
    }
  }

  onBatchEnd(): void {
    if (this.#acknowledged === this.#received || this.#state === "over") return;
    this.#acknowledged = this.#received;
    const frame = allocFrame(FrameType.ack, this.#number, 9);
    frame[PAYLOAD_AT] = 1;
    writeOffset(frame, PAYLOAD_AT + 1, this.#received);
    this.#link.send(frame);
  }

  onLost(error: Error): void {
    this.#lose(error);
  }

  override _read(): void {
    if (!this.#full) return;
    this.#full = false;
    this.#link.afterBatch(this);
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#stdin.push(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#stdin.end();
    // Releasing the channel before would take away what the agent has not handed on yet.
    this.#stdin.whenDrained(done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#state = "over";
    this.#stdin.drop();
    if (this.#link.forget(this.#number)) this.#link.send(encodeFrame(FrameType.release, this.#number));
    done(error);
  }

  #onEnd(errno: number): void {
    this.#state = "ended";
    if (errno === 0) {
      this.push(null);
      return;
    }
    const details = { target: this.#target, errno: errnoName(errno) };
    this.#break(new DSecError("connection_lost", `the connection to ${this.#target} broke`, { details }));
  }

  #lose(error: Error): void {
    if (this.#state === "connecting") {
      this.connected.reject(error);
      this.destroy();
    } else {
      this.#break(error);
    }
  }

  /** Whoever awaits this stream must have a chance to listen before it fails: without a listener its error would end the process. */
  #break(error: Error): void {
    setImmediate(() => this.destroy(error));
  }
}

/** @throws DSecError `port_refused`, `invalid_argument`, `agent_lost` */
export async function dial(link: Link, window: number, port: number, host?: string): Promise<Duplex> {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) {
    throw new DSecError("invalid_argument", `${port} is not a port`);
  }
  if (host !== undefined && isIP(host) === 0) {
    throw new DSecError("invalid_argument", `${JSON.stringify(host)} is not a numeric address`);
  }
  const fields = new FieldWriter().u16(Field.port, port).u32(Field.window, window);
  if (host !== undefined) fields.string(Field.host, host);
  const number = link.allocate();
  const target = host === undefined ? `port ${port}` : `${host} port ${port}`;
  const stream = new DialStream(link, number, target);
  link.attach(number, stream);
  link.send(fields.toFrame(FrameType.dial, number));
  return stream.connected.promise;
}
