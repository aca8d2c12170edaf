import { DSecError } from "../../protocol/errors.ts";
import type { GuestExec, OutputSink, OutputStream } from "../../agent/guest.ts";
import type { ExecExit, ExecSpec } from "../../protocol/exec.ts";
import type { SessionOutcome } from "../../protocol/session.ts";
import type { ExecRecorder } from "./recorder.ts";

/** Where the output of an attached exec goes. */
export interface OutputTarget {
  /** Resolves when the chunk has left; resolves, too, when the client is gone. */
  output(stream: OutputStream, chunk: Buffer): Promise<void>;
}

/** Who killed it, where it was us. */
export type Killer = "disconnect" | "stop" | "protocol" | "refusal";

/** An exec that runs, or whose output has not drained. */
export class LiveExec {
  readonly id: string;
  readonly spec: ExecSpec;
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly recorder: ExecRecorder | undefined;
  /** Settles when it has ended and everything about that is written down. Rejects when its exit is unknown. */
  readonly done: Promise<ExecExit>;
  readonly finish: { resolve(exit: ExecExit): void; reject(error: Error): void };
  killedBy: Killer | undefined;
  guest: GuestExec | undefined;
  /** Of a command in a session, once it has ended. */
  session: SessionOutcome | undefined;
  /** Clients that follow it. */
  attachments = 0;
  #target: OutputTarget | undefined;
  /** The one client whose stdin it reads. */
  #stdinHolder: object | undefined;
  #stdinEnded = false;

  constructor(options: {
    id: string;
    spec: ExecSpec;
    startedAt: number;
    recorder: ExecRecorder | undefined;
    target: OutputTarget | undefined;
  }) {
    this.id = options.id;
    this.spec = options.spec;
    this.startedAt = options.startedAt;
    this.recorder = options.recorder;
    this.#target = options.target;
    const { promise, resolve, reject } = Promise.withResolvers<ExecExit>();
    this.done = promise;
    this.done.catch(() => undefined);
    this.finish = { resolve, reject };
  }

  /** Passes output on to the client and the record; the process is slowed to the slower of both. */
  readonly sink: OutputSink = (stream, offset, chunk) => {
    const sent = this.#target?.output(stream, chunk);
    const kept = this.recorder?.append(stream, offset, chunk);
    return sent !== undefined && kept !== undefined
      ? Promise.all([sent, kept]).then(() => undefined)
      : (sent ?? kept);
  };

  /** @throws DSecError `stdin_taken` while another client writes to it, `conflict` when it has ended */
  takeStdin(holder: object): void {
    if (this.#stdinEnded) throw new DSecError("conflict", `the stdin of exec ${this.id} has ended`);
    if (this.#stdinHolder !== undefined)
      throw new DSecError("stdin_taken", `another client writes to the stdin of exec ${this.id}`);
    this.#stdinHolder = holder;
  }

  releaseStdin(holder: object): void {
    if (this.#stdinHolder === holder) this.#stdinHolder = undefined;
  }

  endStdin(): void {
    this.#stdinEnded = true;
    this.guest?.end();
  }

  /** The client is gone; what is recorded goes on being so. */
  detach(): void {
    this.#target = undefined;
  }

  /** Kills its whole process tree. */
  kill(by: Killer): void {
    this.killedBy ??= by;
    this.guest?.signal(9, "tree");
  }
}
