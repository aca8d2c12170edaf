import type { WebSocket } from "ws";
import { z } from "zod";
import type { OutputStream } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import {
  ClientControl,
  type ExecSpec,
  type ExecStatus,
  Resize,
  type ServerControl,
} from "../../protocol/exec.ts";
import type { ShellSpec } from "../../protocol/session.ts";
import { execChannel, maxExecFrame, stdinWindow } from "../../protocol/exec-frames.ts";
import { toProblem } from "../../protocol/problem-codec.ts";
import type { SandboxEntry } from "../sandbox-entry.ts";
import type { Execs } from "./execs.ts";
import type { LiveExec, OutputTarget } from "./live-exec.ts";
import { signalNumber } from "./signals.ts";

type Phase = "opened" | "starting" | "running" | "over";

/** Credit is given back in portions, or when the client may be waiting for it. */
const creditPortion = stdinWindow / 4;
const normalClosure = 1000;

/**
 * One exec's WebSocket, server side (protocol/exec.ts). Nothing here queues without a bound: stdin by its window, output by the
 * promise that the process's credit waits for.
 */
export class ExecConnection implements OutputTarget {
  readonly #socket: WebSocket;
  readonly #entry: SandboxEntry;
  readonly #execs: Execs;
  #phase: Phase = "opened";
  #exec: LiveExec | undefined;
  /** Resolves when `started` was sent, or never will be. */
  readonly #begun = Promise.withResolvers<void>();
  /** What came while the process was being started. */
  #early: (() => void)[] = [];
  #stdin: Promise<void> = Promise.resolve();
  #stdinEnded = false;
  #refused = false;
  /** The client is gone: a command need not wait for its turn any more. */
  readonly #left = new AbortController();
  /** Bytes the client sent beyond the credit it got. */
  #outstanding = 0;
  #credit = 0;
  readonly #openedAt: number;
  /** When the client last gave a sign of life; milliseconds of the caller's clock. */
  #seen: number;
  readonly #now: () => number;

  constructor(socket: WebSocket, entry: SandboxEntry, execs: Execs, now: () => number) {
    this.#socket = socket;
    this.#entry = entry;
    this.#execs = execs;
    this.#now = now;
    this.#openedAt = now();
    this.#seen = this.#openedAt;
    socket.on("message", (data, isBinary) => this.#message(data, isBinary));
    socket.on("pong", () => this.#alive());
    socket.on("error", () => this.#socket.terminate());
    socket.on("close", () => this.#gone());
  }

  output(stream: OutputStream, chunk: Buffer): Promise<void> {
    // a fast process writes before its start has been told
    return this.#phase === "starting"
      ? this.#begun.promise.then(async () => this.#forward(stream, chunk))
      : this.#forward(stream, chunk);
  }

  /** Asks for a sign of life; cuts a client that has given none for `limitMs`. */
  beat(limitMs: number): void {
    const silent = this.#now() - this.#seen;
    if (this.#phase === "opened" && this.#now() - this.#openedAt > limitMs)
      this.#end(problemStatus(new DSecError("protocol_error", "no start frame came")));
    // a client that does not read may just be paused: whether it lives is then up to TCP
    else if (silent > limitMs && this.#socket.bufferedAmount === 0) this.#socket.terminate();
    else if (this.#socket.readyState === this.#socket.OPEN) this.#socket.ping();
  }

  /** The daemon is about to end. */
  shutDown(): void {
    if (this.#phase === "over") return;
    this.#end(
      problemStatus(
        new DSecError("connection_lost", "the daemon is shutting down", {
          ambiguous: this.#phase !== "opened",
        }),
      ),
    );
    this.#leave();
  }

  #forward(stream: OutputStream, chunk: Buffer): Promise<void> {
    const last = chunk.length - (chunk.length % maxExecFrame || maxExecFrame);
    for (let at = 0; at < last; at += maxExecFrame)
      void this.#send(execChannel[stream], chunk.subarray(at, at + maxExecFrame));
    return this.#send(execChannel[stream], chunk.subarray(Math.max(0, last)));
  }

  #message(data: WebSocket.RawData, isBinary: boolean): void {
    this.#alive();
    if (this.#phase === "over") return;
    try {
      if (!isBinary || !Buffer.isBuffer(data) || data.length === 0)
        throw new DSecError("protocol_error", "frames must be binary and begin with a channel byte");
      this.#frame(data.readUInt8(0), data.subarray(1));
    } catch (error) {
      this.#refuse(error);
    }
  }

  #frame(channel: number, payload: Buffer): void {
    if (payload.length > maxExecFrame)
      throw new DSecError("protocol_error", `a frame may carry ${maxExecFrame} bytes, not ${payload.length}`);
    if (channel === execChannel.control) {
      const control = parse(ClientControl, payload, "control");
      if (control.type === "start") this.#start(control.spec);
      else if (control.type === "shell") this.#startShell(control.spec);
      else {
        const signal = signalNumber(control.signal);
        this.#whenRunning((exec) => exec.guest?.signal(signal, "group"));
      }
    } else if (channel === execChannel.stdin) this.#input(payload);
    else if (channel === execChannel.resize) {
      const { rows, cols } = parse(Resize, payload, "resize");
      this.#whenRunning((exec) => exec.guest?.resize(rows, cols));
    } else throw new DSecError("protocol_error", `clients do not send on channel ${channel}`);
  }

  #start(spec: ExecSpec): void {
    this.#await(() => this.#execs.start(this.#entry, spec, spec.detach ? undefined : this));
  }

  #startShell(spec: ShellSpec): void {
    this.#await(() => this.#execs.startShell(this.#entry, spec, this, this.#left.signal));
  }

  #await(start: () => Promise<LiveExec>): void {
    if (this.#phase !== "opened") throw new DSecError("protocol_error", "an exec is started once");
    this.#phase = "starting";
    start().then(
      (exec) => this.#started(exec),
      (error: unknown) => this.#end(problemStatus(error)),
    );
  }

  #started(exec: LiveExec): void {
    this.#exec = exec;
    if (exec.spec.detach) {
      this.#end({ type: "detached", execId: exec.id });
      return;
    }
    if (this.#phase === "over") {
      this.#leave();
      return;
    }
    this.#phase = "running";
    const started: ServerControl = { type: "started", execId: exec.id, pid: exec.guest?.pid ?? 0 };
    void this.#send(execChannel.control, Buffer.from(JSON.stringify(started)));
    this.#begun.resolve();
    for (const act of this.#early.splice(0)) act();
    exec.done.then(
      (exit) => this.#end(exit),
      (error: unknown) => this.#end(problemStatus(error)),
    );
  }

  #input(payload: Buffer): void {
    if (this.#phase === "opened") throw new DSecError("protocol_error", "the first frame must be a start");
    if (this.#stdinEnded) throw new DSecError("protocol_error", "stdin had ended already");
    if (payload.length === 0) {
      this.#stdinEnded = true;
      this.#whenRunning((exec) => {
        this.#stdin = this.#stdin.then(() => exec.guest?.end());
      });
      return;
    }
    this.#outstanding += payload.length;
    if (this.#outstanding > stdinWindow)
      throw new DSecError("protocol_error", `more than ${stdinWindow} bytes of stdin came without credit`);
    this.#whenRunning((exec) => {
      if (!exec.spec.stdin) throw new DSecError("protocol_error", "stdin was not asked for at the start");
      this.#stdin = this.#stdin
        .then(async () => exec.guest?.write(payload))
        // a guest that is lost ends the exec by itself
        .catch(() => undefined)
        .then(() => this.#grant(payload.length));
    });
  }

  #grant(bytes: number): void {
    this.#outstanding -= bytes;
    this.#credit += bytes;
    if (this.#phase !== "running" || (this.#credit < creditPortion && this.#outstanding > 0)) return;
    const credit: ServerControl = { type: "credit", bytes: this.#credit };
    this.#credit = 0;
    void this.#send(execChannel.control, Buffer.from(JSON.stringify(credit)));
  }

  #whenRunning(act: (exec: LiveExec) => void): void {
    if (this.#phase === "opened") throw new DSecError("protocol_error", "the first frame must be a start");
    const exec = this.#exec;
    if (exec !== undefined) act(exec);
    else if (this.#early.length >= maxEarly)
      throw new DSecError("protocol_error", "too many frames came before the process had started");
    else
      this.#early.push(() => {
        if (this.#exec !== undefined) this.#attempt(this.#exec, act);
      });
  }

  #attempt(exec: LiveExec, act: (exec: LiveExec) => void): void {
    try {
      act(exec);
    } catch (error) {
      this.#refuse(error);
    }
  }

  /** The client broke the protocol: its process ends with the connection. */
  #refuse(error: unknown): void {
    this.#end(problemStatus(error));
    this.#refused = true;
    this.#leave();
  }

  /** Sends the one terminal status, and closes. */
  #end(status: ExecStatus): void {
    if (this.#phase === "over") return;
    this.#phase = "over";
    this.#begun.resolve();
    void this.#send(execChannel.status, Buffer.from(JSON.stringify(status)));
    this.#socket.close(normalClosure);
  }

  #gone(): void {
    const wasOver = this.#phase === "over";
    this.#phase = "over";
    this.#begun.resolve();
    if (!wasOver) this.#leave();
  }

  /** The client is gone before the end: its policy is carried out. A start that is under way comes here when it is done. */
  #leave(): void {
    const exec = this.#exec;
    this.#left.abort(new DSecError("cancelled", "the client went away"));
    if (exec === undefined) return;
    exec.detach();
    if (this.#refused) exec.kill("protocol");
    else if (exec.spec.onDisconnect === "kill") exec.kill("disconnect");
  }

  #alive(): void {
    this.#seen = this.#now();
  }

  /** Resolves when the frame has left this process, or never can. */
  async #send(channel: number, payload: Buffer): Promise<void> {
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
}

/** Signals, resizes and writes that may wait for the process to start. */
const maxEarly = 1024;

function problemStatus(error: unknown): ExecStatus {
  return { type: "error", problem: toProblem(error) };
}

function parse<S extends z.ZodType>(schema: S, payload: Buffer, what: string): z.output<S> {
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
