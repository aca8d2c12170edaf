import type { OutputStream } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import { ClientControl, type ExecSpec, type ExecStatus, Resize } from "../../protocol/exec.ts";
import type { ShellSpec } from "../../protocol/session.ts";
import { execChannel, maxExecFrame } from "../../protocol/exec-frames.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import {
  type ClientConnection,
  type ClientFrames,
  ClientSocket,
  parseFrame,
  problemStatus,
} from "./client-socket.ts";
import type { Execs } from "./execs.ts";
import type { LiveExec, OutputTarget } from "./live-exec.ts";
import { signalNumber } from "./signals.ts";
import { StdinFeed } from "./stdin-feed.ts";

type Phase = "opened" | "starting" | "running" | "over";

/**
 * One exec's WebSocket, server side (protocol/exec.ts). Nothing here queues without a bound: stdin by its window, output by the
 * promise that the process's credit waits for.
 */
export class ExecConnection implements OutputTarget, ClientFrames {
  readonly #socket: ClientSocket;
  readonly #entry: SandboxEntry;
  readonly #execs: Execs;
  #phase: Phase = "opened";
  #exec: LiveExec | undefined;
  /** Resolves when `started` was sent, or never will be. */
  readonly #begun = Promise.withResolvers<void>();
  /** What came while the process was being started. */
  #early: (() => void)[] = [];
  readonly #stdin: StdinFeed;
  #refused = false;
  /** The client is gone: a command need not wait for its turn any more. */
  readonly #left = new AbortController();

  constructor(client: ClientConnection, entry: SandboxEntry, execs: Execs) {
    this.#entry = entry;
    this.#execs = execs;
    this.#socket = new ClientSocket(client, this);
    this.#stdin = new StdinFeed((bytes) => this.#socket.control({ type: "credit", bytes }));
  }

  output(stream: OutputStream, chunk: Buffer): Promise<void> {
    // a fast process writes before its start has been told
    return this.#phase === "starting"
      ? this.#begun.promise.then(async () => this.#forward(stream, chunk))
      : this.#forward(stream, chunk);
  }

  /** Asks for a sign of life; cuts a client that has given none for `limitMs`. */
  beat(limitMs: number): void {
    this.#socket.beat(limitMs, this.#phase !== "opened");
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
      void this.#socket.send(execChannel[stream], chunk.subarray(at, at + maxExecFrame));
    return this.#socket.send(execChannel[stream], chunk.subarray(Math.max(0, last)));
  }

  frame(channel: number, payload: Buffer): void {
    if (channel === execChannel.control) {
      const control = parseFrame(ClientControl, payload, "control");
      if (control.type === "start") this.#start(control.spec);
      else if (control.type === "shell") this.#startShell(control.spec);
      else {
        const signal = signalNumber(control.signal);
        this.#whenRunning((exec) => exec.guest?.signal(signal, "group"));
      }
    } else if (channel === execChannel.stdin) this.#input(payload);
    else if (channel === execChannel.resize) {
      const { rows, cols } = parseFrame(Resize, payload, "resize");
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
    if (exec.spec.stdin) exec.takeStdin(this);
    this.#socket.control({ type: "started", execId: exec.id, pid: exec.guest?.pid ?? 0 });
    this.#begun.resolve();
    for (const act of this.#early.splice(0)) act();
    exec.done.then(
      (exit) => this.#end(exit),
      (error: unknown) => this.#end(problemStatus(error)),
    );
  }

  #input(payload: Buffer): void {
    if (this.#phase === "opened") throw new DSecError("protocol_error", "the first frame must be a start");
    this.#stdin.accept(payload);
    this.#whenRunning((exec) => {
      if (!exec.spec.stdin && payload.length > 0)
        throw new DSecError("protocol_error", "stdin was not asked for at the start");
      this.#stdin.pass(payload, exec);
    });
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
      this.refused(error);
    }
  }

  /** The client broke the protocol: its process ends with the connection. */
  refused(error: unknown): void {
    this.#end(problemStatus(error));
    this.#refused = true;
    this.#leave();
  }

  /** Sends the one terminal status, and closes. */
  #end(status: ExecStatus): void {
    if (this.#phase === "over") return;
    this.#phase = "over";
    this.#begun.resolve();
    this.#socket.end(status);
  }

  gone(): void {
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
    exec.releaseStdin(this);
    if (this.#refused) exec.kill("protocol");
    else if (exec.spec.onDisconnect === "kill") exec.kill("disconnect");
  }
}

/** Signals, resizes and writes that may wait for the process to start. */
const maxEarly = 1024;
