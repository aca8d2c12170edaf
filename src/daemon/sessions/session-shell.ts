import type { Guest, GuestExec, GuestExit, OutputSink } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { Clock } from "../clock.ts";
import { discard, Exchange, type ExchangeEnd } from "./exchange.ts";
import type { Env, ExecDefaults } from "../exec/exec-defaults.ts";
import { abortSignal, mayEndExecution, type Script, type ShellDriver } from "./shell-driver.ts";

export interface ShellParts {
  readonly clock: Clock;
  /** At least 12 unguessable letters, digits, `-` or `_`. */
  readonly newNonce: () => string;
  /** Milliseconds in which a shell must answer the daemon itself, or give up a command it was told to. */
  readonly graceMs: number;
  /** The shells to look for, the best first. */
  readonly drivers: readonly ShellDriver[];
}

export interface ShellCommand {
  readonly text: string;
  readonly env: Env;
  /** For this command alone. */
  readonly cwd: string | undefined;
  /** Milliseconds; 0 means none. */
  readonly timeoutMs: number;
}

/** How a command ended; what its shell came to is {@link SessionShell.isAlive}. */
export interface CommandEnd {
  readonly exit: GuestExit;
  /** Why it was ended from outside. */
  readonly interrupted: Interruption | undefined;
}

export interface BegunCommand {
  readonly ended: Promise<CommandEnd>;
}

type Interruption = "timeout" | "abort";

const sigkill = 9;
/** Milliseconds in which a shell that may run nothing any more must give up, nevertheless. */
const doubtfulGraceMs = 1000;
/** Milliseconds after which what an interrupted command began is killed again; each time twice as many. */
const firstAgainMs = 50;

/**
 * One live shell in a sandbox. Commands are written to its stdin, one after the other, never two at a time:
 * idle → running → (interrupted →) idle, and from anywhere → ended.
 */
export class SessionShell {
  /** Resolves, never rejects, when the shell has ended or is lost. */
  readonly ended: Promise<void>;
  readonly #exec: GuestExec;
  readonly #driver: ShellDriver;
  readonly #parts: ShellParts;
  readonly #output: Receiver;
  #level = 0;
  #isAlive = true;

  /** @throws DSecError `command_not_found` when there is no shell, and what else the guest says of its start */
  static async start(guest: Guest, defaults: ExecDefaults, parts: ShellParts): Promise<SessionShell> {
    const shell = await SessionShell.#launch(guest, defaults, parts, parts.drivers);
    await shell.#setUp();
    return shell;
  }

  static async #launch(
    guest: Guest,
    defaults: ExecDefaults,
    parts: ShellParts,
    [driver, ...others]: readonly ShellDriver[],
  ): Promise<SessionShell> {
    if (driver === undefined) throw new DSecError("command_not_found", "the sandbox has no shell");
    const receiver: Receiver = { exchange: undefined };
    // what comes while no command runs is of background processes, and is dropped
    const sink: OutputSink = (stream, _offset, chunk) => receiver.exchange?.output(stream, chunk);
    try {
      const exec = await guest.exec({ argv: driver.argv, stdin: true, ...defaults }, sink);
      return new SessionShell(exec, driver, parts, receiver);
    } catch (error) {
      if (isMissing(error)) return SessionShell.#launch(guest, defaults, parts, others);
      throw error;
    }
  }

  private constructor(exec: GuestExec, driver: ShellDriver, parts: ShellParts, output: Receiver) {
    this.#exec = exec;
    this.#driver = driver;
    this.#parts = parts;
    this.#output = output;
    this.ended = exec.exit.then(
      async (exit) => {
        this.#isAlive = false;
        await output.exchange?.shellEnded(exit);
      },
      (error: unknown) => {
        this.#isAlive = false;
        output.exchange?.shellLost(error);
      },
    );
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** Process id inside the sandbox. */
  get pid(): number {
    return this.#exec.pid;
  }

  /**
   * Begins a command. Its end, which may be the shell's, is `ended`: it rejects with `agent_lost`, or with what the sink threw.
   * @param signal ends it as a timeout does
   * @throws DSecError `no_such_cwd`; `invalid_argument` for a variable no shell can have; `agent_lost`
   */
  async begin(command: ShellCommand, sink: OutputSink, signal: AbortSignal): Promise<BegunCommand> {
    for (const name of Object.keys(command.env))
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
        throw new DSecError("invalid_argument", `env: a shell has no variable ${JSON.stringify(name)}`);
    if (command.cwd !== undefined) await this.#enter(command.cwd);
    if (!this.#isAlive) throw gone();
    return { ended: this.#run(command, sink, signal) };
  }

  /** Sends what the command has begun a signal; the shell itself gets none. */
  signal(signal: number): void {
    this.#exec.signal(signal, "begun");
  }

  /** Kills every process it ever started, and itself; resolves when it has ended. */
  async end(): Promise<void> {
    this.#exec.signal(sigkill, "tree");
    await this.ended;
    this.#exec.release();
  }

  /** Kills what an ended shell has left behind. */
  sweep(): void {
    this.#exec.signal(sigkill, "tree");
    this.#exec.release();
  }

  /** Lets go of an ended shell and of what it has left behind. */
  release(): void {
    this.#exec.release();
  }

  async #setUp(): Promise<void> {
    const nonce = this.#parts.newNonce();
    const level = await this.#ask(this.#driver.prologue(nonce), nonce);
    if (level !== undefined) {
      this.#level = level;
      return;
    }
    this.sweep();
    throw new DSecError("unsupported", "the sandbox's shell ended before it took a command", {
      details: { shell: this.#driver.argv[0] },
    });
  }

  async #enter(directory: string): Promise<void> {
    const nonce = this.#parts.newNonce();
    const status = await this.#ask(this.#driver.enter(directory, nonce), nonce);
    if (status !== undefined && status !== 0)
      throw new DSecError("no_such_cwd", `cannot run the command in ${JSON.stringify(directory)}`, {
        details: { cwd: directory },
      });
  }

  /** A directory that cannot be gone back to is a lost state, and a shell without its state is none. */
  async #leave(): Promise<void> {
    const nonce = this.#parts.newNonce();
    const status = await this.#ask(this.#driver.leave(nonce), nonce);
    if (status === undefined || status === 0) return;
    this.#exec.signal(sigkill, "process");
    await this.ended;
  }

  /** A script of the daemon's own: its number, or undefined when the shell ended over it. A silent shell is killed. */
  async #ask(text: string, nonce: string): Promise<number | undefined> {
    if (!this.#isAlive) return undefined;
    const exchange = new Exchange(nonce, discard, () => undefined);
    const disposeGrace = this.#killLater(exchange, this.#parts.graceMs);
    try {
      const end = await this.#converse(exchange, text);
      return "status" in end ? end.status : undefined;
    } finally {
      disposeGrace();
    }
  }

  async #run(command: ShellCommand, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
    const end = await this.#runHere(command, sink, signal);
    if (command.cwd !== undefined && this.#isAlive) await this.#leave();
    return end;
  }

  async #runHere(command: ShellCommand, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
    const { clock, newNonce } = this.#parts;
    const nonce = newNonce();
    const script = this.#driver.command(command.text, command.env, this.#level, nonce);
    let interrupted: Interruption | undefined;
    let disposeGrace = (): void => undefined;
    const interrupt = (by: Interruption): void => {
      if (interrupted !== undefined) return;
      interrupted = by;
      const { graceMs } = this.#parts;
      const patience = mayEndExecution(command.text) ? Math.min(doubtfulGraceMs, graceMs) : graceMs;
      disposeGrace = this.#interrupt(script, exchange, patience);
    };
    const onAbort = (): void => interrupt("abort");
    const exchange = new Exchange(nonce, sink, onAbort);
    const { timeoutMs } = command;
    this.#exec.mark();
    const ended = this.#converse(exchange, script.text);
    const disposeTimeout = timeoutMs === 0 ? undefined : clock.after(timeoutMs, () => interrupt("timeout"));
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      const exit = exitOf(await ended, exchange, interrupted);
      if (exchange.failure !== undefined) throw exchange.failure;
      return { exit, interrupted };
    } finally {
      disposeTimeout?.();
      disposeGrace();
      signal.removeEventListener("abort", onAbort);
    }
  }

  async #converse(exchange: Exchange, text: string): Promise<ExchangeEnd> {
    if (!this.#isAlive) throw gone();
    this.#output.exchange = exchange;
    void this.#exec.write(Buffer.from(text));
    try {
      return await exchange.ended;
    } finally {
      this.#output.exchange = undefined;
    }
  }

  /** Kills what the command began and makes the shell give up the rest of it; a shell that does not is killed. */
  #interrupt(script: Script, exchange: Exchange, graceMs: number): () => void {
    this.#exec.signal(sigkill, "begun");
    if (!script.abortable) {
      this.#exec.signal(sigkill, "process");
      return () => undefined;
    }
    // the shell stands still until they are dead, so it meets this before anything that comes next
    this.#exec.signal(abortSignal, "process");
    if (this.#driver.afterAbort !== "") void this.#exec.write(Buffer.from(this.#driver.afterAbort));
    const disposeRepeat = this.#killAgain(firstAgainMs);
    const disposeGrace = this.#killLater(exchange, graceMs);
    return () => {
      disposeRepeat();
      disposeGrace();
    };
  }

  /**
   * A shell that was just about to begin a process waits for it before it looks at the signal. The kill alone is repeated: it
   * cannot hit what comes after, as the shell stands still meanwhile. Returns its dispose.
   */
  #killAgain(ms: number): () => void {
    let dispose = this.#parts.clock.after(ms, () => {
      this.#exec.signal(sigkill, "begun");
      dispose = this.#killAgain(2 * ms);
    });
    return () => dispose();
  }

  /** Returns its dispose. A marker that stands behind output which nobody reads is not late. */
  #killLater(exchange: Exchange, graceMs: number): () => void {
    const { clock } = this.#parts;
    let dispose = (): void => undefined;
    const arm = (): void => {
      dispose = clock.after(graceMs, () => {
        if (exchange.isConsuming) arm();
        else this.#exec.signal(sigkill, "process");
      });
    };
    arm();
    return () => dispose();
  }
}

interface Receiver {
  exchange: Exchange | undefined;
}

function exitOf(end: ExchangeEnd, exchange: Exchange, interrupted: Interruption | undefined): GuestExit {
  const common = {
    timedOut: interrupted === "timeout",
    stdoutBytes: exchange.bytes.stdout,
    stderrBytes: exchange.bytes.stderr,
  };
  if ("exit" in end) return { ...end.exit, ...common };
  if (interrupted === undefined) return { code: end.status, ...common };
  // the shell lives, but what it ran was killed
  return { code: 128 + sigkill, signal: sigkill, ...common };
}

function gone(): DSecError {
  return new DSecError("agent_lost", "the session's shell was gone before the command began");
}

function isMissing(error: unknown): boolean {
  return (
    error instanceof DSecError &&
    (error.code === "command_not_found" || error.code === "command_not_executable")
  );
}
