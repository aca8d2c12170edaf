import { setImmediate } from "node:timers/promises";
import type { GuestExec, GuestExit, OutputSink, OutputStream } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ProcessIo, Program } from "./programs.ts";
import { StdinPipe } from "./stdin-pipe.ts";
import type { Timers } from "./timers.ts";

/** What the guest has looked up before a process starts. */
export interface ProcessStart {
  readonly channel: number;
  readonly pid: number;
  readonly program: Program;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly uid: number;
  readonly gid: number;
  readonly hostname: string;
  readonly stdin: boolean;
  readonly tty: boolean;
  readonly timeoutMs: number;
}

type End = { readonly code: number } | { readonly signal: number };

const SIGKILL = 9;
/** Signals whose default does nothing here: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH. */
const IGNORED: ReadonlySet<number> = new Set([0, 17, 18, 19, 20, 21, 22, 23, 28]);
const CHUNK = 32_768;

/** One running program. It has no process tree: a signal of any scope reaches it alone. */
export class SimulatedProcess implements GuestExec {
  readonly channel: number;
  readonly pid: number;
  readonly exit: Promise<GuestExit>;
  readonly #stdin = new StdinPipe();
  readonly #sink: OutputSink;
  readonly #tty: boolean;
  readonly #offsets = { stdout: 0, stderr: 0 };
  readonly #killed = Promise.withResolvers<End>();
  readonly #lost = Promise.withResolvers<never>();
  #over = false;
  #timedOut = false;
  #delivery: Promise<void> | undefined;
  readonly #disposes: (() => void)[] = [];

  constructor(start: ProcessStart, sink: OutputSink, timers: Timers) {
    this.channel = start.channel;
    this.pid = start.pid;
    this.#sink = sink;
    this.#tty = start.tty;
    if (!start.stdin && !start.tty) this.#stdin.end();
    if (start.timeoutMs > 0) {
      this.#disposes.push(
        timers.after(start.timeoutMs, () => {
          this.#timedOut = true;
          this.#kill(SIGKILL);
        }),
      );
    }
    this.exit = Promise.race([this.#run(start, timers), this.#lost.promise]);
    // A caller that never asks how it ended must not bring the daemon down.
    this.exit.catch(() => undefined);
  }

  async write(chunk: Uint8Array): Promise<void> {
    await this.#stdin.write(chunk);
  }

  end(): void {
    this.#stdin.end();
  }

  signal(signal: number): void {
    if (!IGNORED.has(signal)) this.#kill(signal);
  }

  resize(): void {}

  mark(): void {}

  release(): void {
    this.lose(new DSecError("cancelled", "released before it ended"));
  }

  /** Nobody will hear of it: {@link exit} rejects, and the program, which lives in the daemon, ends. */
  lose(error: DSecError): void {
    this.#lost.reject(error);
    this.#kill(SIGKILL);
  }

  async #run(start: ProcessStart, timers: Timers): Promise<GuestExit> {
    const program = Promise.resolve(start.program(start.args, this.#io(start, timers)));
    try {
      const end = await Promise.race([program.then((code): End => ({ code })), this.#killed.promise]);
      this.#over = true;
      await this.#delivery;
      return {
        code: "code" in end ? end.code : 128 + end.signal,
        ...("signal" in end ? { signal: end.signal } : {}),
        timedOut: this.#timedOut,
        stdoutBytes: this.#offsets.stdout,
        stderrBytes: this.#offsets.stderr,
      };
    } finally {
      this.#over = true;
      this.#stdin.close();
      for (const dispose of this.#disposes) dispose();
    }
  }

  #io(start: ProcessStart, timers: Timers): ProcessIo {
    const alive = (): void => {
      if (this.#over) throw new DSecError("cancelled", "the simulated process has ended");
    };
    return {
      env: start.env,
      cwd: start.cwd,
      uid: start.uid,
      gid: start.gid,
      hostname: start.hostname,
      read: async () => {
        const chunk = await this.#stdin.read();
        alive();
        return chunk;
      },
      write: async (stream, bytes) => {
        const whole = Buffer.from(bytes);
        for (let at = 0; at < whole.length; at += CHUNK) {
          alive();
          this.#delivery = this.#deliver(stream, whole.subarray(at, at + CHUNK));
          await this.#delivery;
        }
      },
      sleep: async (ms) => {
        alive();
        await new Promise<void>((resolve) => {
          this.#disposes.push(timers.after(ms, resolve));
        });
      },
      turn: async () => {
        await setImmediate();
        alive();
      },
      kill: (signal) => this.signal(signal),
    };
  }

  async #deliver(written: OutputStream, chunk: Buffer): Promise<void> {
    const stream = this.#tty ? "stdout" : written;
    const offset = this.#offsets[stream];
    this.#offsets[stream] += chunk.length;
    await this.#sink(stream, offset, chunk);
  }

  #kill(signal: number): void {
    this.#killed.resolve({ signal });
  }
}
