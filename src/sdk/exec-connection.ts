import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../protocol/errors.ts";
import { execChannel, maxExecFrame, stdinWindow } from "../protocol/exec-frames.ts";
import type {
  AttachRequestInput,
  ClientControl,
  ExecSpecInput,
  ExecStatus,
  ServerControl,
  StreamOffsets,
} from "../protocol/exec.ts";
import type { ShellSpecInput } from "../protocol/session.ts";
import { fromProblem } from "../protocol/problem-codec.ts";
import type { ExecSocket } from "./exec-socket.ts";

/** Receives what the server sends, in order. A promise returned by `output` stops the connection until it settles. */
export interface ExecEvents {
  /** @param from where its output begins; the start, unless it was attached to */
  started?(execId: string, pid: number, from: StreamOffsets): void;
  /** So many bytes of a stream are missing here. Without it they make the exec fail. */
  gap?(stream: "stdout" | "stderr", bytes: number): void;
  output(stream: "stdout" | "stderr", bytes: Buffer): void | Promise<void>;
  /** Exactly once, last: the terminal status, or why there is none. */
  ended(outcome: Exclude<ExecStatus, { type: "error" }> | DSecError): void;
}

/** One exec over its WebSocket: frames in and out, credit for stdin, and the terminal status. */
export class ExecConnection {
  readonly #socket: ExecSocket;
  readonly #events: ExecEvents;
  readonly #unsubscribe: () => void;
  /** Frames that were on their way when the connection was paused: what one read of the socket holds. */
  readonly #frames: { readonly data: Buffer; readonly binary: boolean }[] = [];
  #consuming = false;
  #heartbeat: NodeJS.Timeout | undefined;
  #brokenBy: DSecError | undefined;
  #outcome: "open" | "ended" = "open";
  #credit = stdinWindow;
  #waiting: (() => void) | undefined;

  /** Sends the spec; from here on the exec may have happened. */
  static start(
    socket: ExecSocket,
    spec: ExecSpecInput,
    events: ExecEvents,
    signal: AbortSignal | undefined,
  ): ExecConnection {
    return new ExecConnection(socket, { type: "start", spec }, events, signal);
  }

  /** The same for a command of a session. */
  static startShell(
    socket: ExecSocket,
    spec: ShellSpecInput,
    events: ExecEvents,
    signal: AbortSignal | undefined,
  ): ExecConnection {
    return new ExecConnection(socket, { type: "shell", spec }, events, signal);
  }

  /** To an exec that runs, or has ended. */
  static attach(
    socket: ExecSocket,
    request: Omit<AttachRequestInput, "type">,
    events: ExecEvents,
    signal: AbortSignal | undefined,
  ): ExecConnection {
    return new ExecConnection(socket, { type: "attach", ...request }, events, signal);
  }

  private constructor(socket: ExecSocket, first: First, events: ExecEvents, signal: AbortSignal | undefined) {
    this.#socket = socket;
    this.#events = events;
    const abort = (): void => {
      this.fail(
        new DSecError("cancelled", "the exec was cancelled", { ambiguous: true, cause: signal?.reason }),
      );
    };
    this.#unsubscribe = () => signal?.removeEventListener("abort", abort);
    socket.on("message", (data: Buffer, binary: boolean) => {
      if (this.#consuming) this.#frames.push({ data, binary });
      else this.#receive(data, binary);
    });
    socket.on("error", (cause) => this.#broken("the connection of the exec broke", cause));
    socket.on("close", () => this.#broken("the connection ended before the exec's status arrived"));
    const begin = control(first);
    if (begin.length > maxExecFrame) queueMicrotask(() => this.fail(tooLarge(begin.length)));
    else this.#send(execChannel.control, begin);
    if (signal?.aborted === true) queueMicrotask(abort);
    else signal?.addEventListener("abort", abort, { once: true });
  }

  /** Whether nothing is sent any more. */
  get hasEnded(): boolean {
    return this.#outcome === "ended";
  }

  /** Sends stdin; resolves when the bytes fit the window. After the end they are dropped. */
  async write(bytes: Uint8Array): Promise<void> {
    for (let offset = 0; offset < bytes.length && this.#outcome === "open";) {
      if (this.#credit === 0) await new Promise<void>((resolve) => (this.#waiting = resolve));
      const part = bytes.subarray(offset, offset + Math.min(this.#credit, maxStdinFrame));
      this.#credit -= part.length;
      offset += part.length;
      this.#send(execChannel.stdin, part);
    }
  }

  /** Ends stdin. */
  end(): void {
    this.#send(execChannel.stdin, new Uint8Array(0));
  }

  resize(rows: number, cols: number): void {
    this.#send(execChannel.resize, json({ rows, cols }));
  }

  /** @param signal e.g. `TERM` or `SIGTERM` */
  signal(signal: string): void {
    this.#send(execChannel.control, control({ type: "signal", signal }));
  }

  /** Ends the exec on this side and cuts the connection; the node then does what `onDisconnect` says. */
  fail(error: DSecError): void {
    this.#finish(error);
    this.#socket.terminate();
  }

  /** As {@link fail}, but what was sent before still arrives. */
  async leave(reason: DSecError): Promise<void> {
    if (this.#outcome === "ended") return;
    this.#finish(reason);
    const closed = new Promise<void>((resolve) => this.#socket.on("close", resolve));
    // the answer to the closing can only be read by a socket that reads
    this.#socket.resume();
    this.#socket.close(1000);
    await Promise.race([closed, delay(closingMs, undefined, { ref: false })]);
    this.#socket.terminate();
  }

  #receive(data: Buffer, binary: boolean): void {
    if (this.#outcome === "ended") return;
    const payload = data.subarray(1);
    try {
      if (!binary) throw new DSecError("protocol_error", "the server sent a text frame");
      switch (data[0]) {
        case execChannel.stdout:
          return this.#output("stdout", payload);
        case execChannel.stderr:
          return this.#output("stderr", payload);
        case execChannel.control:
          return this.#control(JSON.parse(String(payload)) as ServerControl);
        case execChannel.status:
          return this.#status(JSON.parse(String(payload)) as ExecStatus);
        default:
          throw new DSecError("protocol_error", `the server sent a frame of the unknown channel ${data[0]}`);
      }
    } catch (error) {
      this.fail(
        error instanceof DSecError
          ? error
          : new DSecError("protocol_error", "the server sent a malformed frame", {
              cause: error,
              ambiguous: true,
            }),
      );
    }
  }

  #output(stream: "stdout" | "stderr", bytes: Buffer): void {
    const consumed = this.#events.output(stream, bytes);
    if (consumed === undefined) return;
    this.#consuming = true;
    this.#socket.pause();
    // the node's pings are not read meanwhile: a receiver that takes long must not look like one that is gone
    this.#heartbeat ??= setInterval(() => this.#consuming && this.#socket.pong(), heartbeatMs).unref();
    consumed.then(
      () => this.#consumed(),
      (cause: unknown) =>
        this.fail(
          cause instanceof DSecError
            ? cause
            : new DSecError("cancelled", "the receiver of the output failed", { cause, ambiguous: true }),
        ),
    );
  }

  #consumed(): void {
    this.#consuming = false;
    while (!this.#consuming) {
      const frame = this.#frames.shift();
      if (frame === undefined) break;
      this.#receive(frame.data, frame.binary);
    }
    if (this.#consuming) return;
    if (this.#brokenBy !== undefined) this.fail(this.#brokenBy);
    else this.#socket.resume();
  }

  /** What arrived before the connection broke comes first: the status may be among it. */
  #broken(message: string, cause?: unknown): void {
    if (this.#outcome === "ended") return;
    const error = lost(message, cause);
    if (this.#consuming) this.#brokenBy ??= error;
    else this.fail(error);
  }

  #control(message: ServerControl): void {
    // what a newer server may add is not for this client
    if (message.type === "started") this.#events.started?.(message.execId, message.pid, fromTheStart);
    else if (message.type === "attached") this.#events.started?.(message.execId, message.pid, message.from);
    else if (message.type === "gap") {
      if (this.#events.gap === undefined) throw missing(message.stream, message.bytes);
      this.#events.gap(message.stream, message.bytes);
    } else if (message.type === "credit") {
      this.#credit += message.bytes;
      this.#release();
    }
  }

  #status(status: ExecStatus): void {
    this.#finish(status.type === "error" ? fromProblem(status.problem) : status);
    this.#socket.close(1000);
  }

  #finish(outcome: Exclude<ExecStatus, { type: "error" }> | DSecError): void {
    if (this.#outcome === "ended") return;
    this.#outcome = "ended";
    this.#frames.length = 0;
    clearInterval(this.#heartbeat);
    this.#unsubscribe();
    this.#release();
    this.#events.ended(outcome);
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }

  #send(channel: number, payload: Uint8Array): void {
    if (this.#outcome === "ended" || this.#socket.readyState !== this.#socket.OPEN) return;
    const frame = Buffer.allocUnsafe(payload.length + 1);
    frame[0] = channel;
    frame.set(payload, 1);
    this.#socket.send(frame);
  }
}

/** Milliseconds for the node to answer a closing. */
const closingMs = 1000;
/** Well below what a node takes for silence, three minutes. */
const heartbeatMs = 30_000;
/** Bytes of stdin in one frame. */
const maxStdinFrame = 65_536;

const fromTheStart: StreamOffsets = { stdout: 0, stderr: 0 };

type First =
  | AttachRequestInput
  | { readonly type: "start"; readonly spec: ExecSpecInput }
  | { readonly type: "shell"; readonly spec: ShellSpecInput };

function control(message: First | Extract<ClientControl, { type: "signal" }>): Uint8Array {
  return json(message);
}

function json(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value));
}

function missing(stream: string, bytes: number): DSecError {
  const message = `${bytes} bytes of the command's ${stream} were not kept, or came too fast for this reader`;
  return new DSecError("output_lost", message, { details: { stream, bytes } });
}

/** A server would cut the connection, which looks as if the command might have run. */
function tooLarge(bytes: number): DSecError {
  return new DSecError(
    "body_too_large",
    `the command, its arguments and its environment take ${bytes} bytes, of which ${maxExecFrame} can be sent: ` +
      "pass what is large by stdin or a file",
  );
}

function lost(message: string, cause?: unknown): DSecError {
  return new DSecError("connection_lost", message, {
    ambiguous: true,
    ...(cause === undefined ? {} : { cause }),
  });
}
