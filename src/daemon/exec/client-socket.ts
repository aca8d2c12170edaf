import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { z } from "zod";
import { DSecError } from "../../protocol/errors.ts";
import type { ExecStatus, ServerControl } from "../../protocol/exec.ts";
import { execChannel, maxExecFrame } from "../../protocol/exec-frames.ts";
import { toProblem } from "../../protocol/problem-codec.ts";

/** Who handles what a client sends. */
export interface ClientFrames {
  /** May throw what the client is to be told. */
  frame(channel: number, payload: Buffer): void;
  /** The client broke the protocol, or asked for what cannot be. */
  refused(error: unknown): void;
  /** The connection is closed. */
  gone(): void;
}

export interface ClientConnection {
  readonly socket: WebSocket;
  /** What carries it. */
  readonly transport: Duplex;
  /** Milliseconds. */
  readonly now: () => number;
}

const normalClosure = 1000;

/** The daemon's end of a client's WebSocket: frames by channel, signs of life, and the one status at the end. */
export class ClientSocket {
  readonly #socket: WebSocket;
  readonly #transport: Duplex;
  readonly #frames: ClientFrames;
  readonly #now: () => number;
  readonly #openedAt: number;
  /** When the client last gave a sign of life; milliseconds of the caller's clock. */
  #seen: number;
  #isOver = false;

  constructor({ socket, transport, now }: ClientConnection, frames: ClientFrames) {
    this.#socket = socket;
    this.#transport = transport;
    this.#frames = frames;
    this.#now = now;
    this.#openedAt = now();
    this.#seen = this.#openedAt;
    socket.on("message", (data, isBinary) => this.#message(data, isBinary));
    socket.on("pong", () => this.#alive());
    socket.on("error", () => this.#socket.terminate());
    socket.on("close", () => {
      this.#isOver = true;
      this.#frames.gone();
    });
  }

  /** The status has been sent, or the connection is closed. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Resolves when the frame has left this process, or never can. */
  async send(channel: number, payload: Buffer): Promise<void> {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    const frame = Buffer.allocUnsafe(payload.length + 1);
    frame.writeUInt8(channel, 0);
    payload.copy(frame, 1);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#socket.send(frame, { binary: true }, () => {
      this.#alive();
      resolve();
    });
    await promise;
  }

  control(message: ServerControl): void {
    void this.send(execChannel.control, Buffer.from(JSON.stringify(message)));
  }

  /** Sends the one terminal status, and closes. */
  end(status: ExecStatus): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // one write, on this hop and the next
    this.#transport.cork();
    void this.send(execChannel.status, Buffer.from(JSON.stringify(status)));
    this.#socket.close(normalClosure);
    this.#transport.uncork();
  }

  /** Asks for a sign of life; cuts a client that has given none for `limitMs`. @param hasBegun its first frame has come */
  beat(limitMs: number, hasBegun: boolean): void {
    const silent = this.#now() - this.#seen;
    if (!hasBegun && this.#now() - this.#openedAt > limitMs)
      this.end(problemStatus(new DSecError("protocol_error", "no start frame came")));
    // a client that does not read may just be paused: whether it lives is then up to TCP
    else if (silent > limitMs && this.#socket.bufferedAmount === 0) this.#socket.terminate();
    else if (this.#socket.readyState === this.#socket.OPEN) this.#socket.ping();
  }

  #message(data: WebSocket.RawData, isBinary: boolean): void {
    this.#alive();
    if (this.#isOver) return;
    try {
      if (!isBinary || !Buffer.isBuffer(data) || data.length === 0)
        throw new DSecError("protocol_error", "frames must be binary and begin with a channel byte");
      const payload = data.subarray(1);
      if (payload.length > maxExecFrame)
        throw new DSecError(
          "protocol_error",
          `a frame may carry ${maxExecFrame} bytes, not ${payload.length}`,
        );
      this.#frames.frame(data.readUInt8(0), payload);
    } catch (error) {
      this.#frames.refused(error);
    }
  }

  #alive(): void {
    this.#seen = this.#now();
  }
}

export function problemStatus(error: unknown): ExecStatus {
  return { type: "error", problem: toProblem(error) };
}

/** The JSON of a frame. @throws DSecError `protocol_error`, `invalid_argument` naming the field */
export function parseFrame<S extends z.ZodType>(schema: S, payload: Buffer, what: string): z.output<S> {
  let value: unknown;
  try {
    value = JSON.parse(payload.toString("utf8"));
  } catch (cause) {
    throw new DSecError("protocol_error", `the ${what} frame is not JSON`, { cause });
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new DSecError(
    "invalid_argument",
    `${issue?.path.map(String).join(".") ?? what}: ${issue?.message ?? "is not valid"}`,
    { details: { issues: z.prettifyError(result.error).split("\n") } },
  );
}
