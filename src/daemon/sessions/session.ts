import type { Guest, OutputSink } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { SessionInfo, SessionOutcome, ShellSpec } from "../../protocol/session.ts";
import { Semaphore } from "../semaphore.ts";
import type { SessionDefaults } from "./session-defaults.ts";
import { type CommandEnd, SessionShell, type ShellParts } from "./session-shell.ts";

export interface SessionParts extends ShellParts {
  /** @throws DSecError `sandbox_not_running` */
  readonly guest: () => Guest;
  readonly defaults: () => SessionDefaults;
}

/** What a command came to, and its session. */
export interface SessionRun extends CommandEnd {
  readonly session: SessionOutcome;
}

/** Commands that may wait for their turn. */
const maxWaiting = 256;
/** Ended shells whose background processes still end with the session. */
const maxPast = 4;

/** One named session: at most one shell at a time, which outlives commands but not what ends it. */
export class Session {
  readonly name: string;
  readonly #parts: SessionParts;
  readonly #turn = new Semaphore(1);
  readonly #ending = new AbortController();
  readonly #startedAt: number;
  #user: string | undefined;
  #shell: SessionShell | undefined;
  #past: SessionShell[] = [];
  #waiting = 0;
  #commands = 0;
  #restarts = 0;
  /** The shell was lost while no command ran: the next one's caller is to know. */
  #lossUntold = false;
  #lastUsedAt: number;

  constructor(name: string, parts: SessionParts) {
    this.name = name;
    this.#parts = parts;
    this.#startedAt = this.#lastUsedAt = parts.clock.now();
  }

  /** No command has met a shell yet, and none is about to. */
  get isUnused(): boolean {
    return this.#waiting === 0 && this.#commands === 0;
  }

  info(): SessionInfo {
    const user = this.#user;
    return {
      name: this.name,
      ...(this.#shell === undefined ? {} : { pid: this.#shell.pid }),
      ...(user === undefined ? {} : { user }),
      busy: this.#waiting > 0,
      commands: this.#commands,
      restarts: this.#restarts,
      startedAt: this.#startedAt,
      lastUsedAt: this.#lastUsedAt,
    };
  }

  /**
   * Runs a command when those before it are over.
   * @param signal gives up waiting; ends the command when it runs, as a timeout does
   * @throws DSecError `session_limit` when too many wait, `conflict` for another user, `cancelled`, and what its shell throws
   */
  async run(spec: ShellSpec, sink: OutputSink, signal: AbortSignal): Promise<SessionRun> {
    if (this.#waiting > maxWaiting)
      throw new DSecError("session_limit", `${maxWaiting} commands wait in session ${this.name} already`);
    const either = AbortSignal.any([signal, this.#ending.signal]);
    this.#waiting += 1;
    try {
      const release = await this.#turn.acquire(either);
      try {
        return await this.#runNow(spec, sink, either);
      } finally {
        release();
      }
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Kills every process of the session; a command that runs ends with them. Resolves when its shell has ended. */
  async end(): Promise<void> {
    this.#ending.abort(new DSecError("cancelled", `session ${this.name} was ended`));
    for (const shell of this.#past.splice(0)) shell.sweep();
    await this.#shell?.end();
  }

  async #runNow(spec: ShellSpec, sink: OutputSink, signal: AbortSignal): Promise<SessionRun> {
    const shell = this.#shell ?? (await this.#begin(spec.user));
    if (spec.user !== undefined && spec.user !== this.#user)
      throw new DSecError("conflict", `session ${this.name} is of another user`, {
        details: { user: this.#user },
      });
    if (signal.aborted) throw signal.reason;
    const isFresh = this.#lossUntold;
    const { command: text, env, cwd, timeoutMs } = spec;
    this.#commands += 1;
    const end = await shell.run({ text, env, cwd, timeoutMs }, sink, signal);
    if (!shell.isAlive) await shell.ended;
    this.#lastUsedAt = this.#parts.clock.now();
    const isKept = shell.isAlive && !isFresh;
    this.#lossUntold = false;
    return { ...end, session: { name: this.name, shell: isKept ? "kept" : "restarted" } };
  }

  async #begin(asked: string | undefined): Promise<SessionShell> {
    const { user: usual, ...defaults } = this.#parts.defaults();
    const user = this.#user ?? asked ?? usual;
    const shell = await SessionShell.start(
      this.#parts.guest(),
      user === undefined ? defaults : { ...defaults, user },
      this.#parts,
    );
    this.#user = user;
    this.#shell = shell;
    void shell.ended.then(() => this.#lost(shell));
    if (this.#ending.signal.aborted) await shell.end();
    return shell;
  }

  #lost(shell: SessionShell): void {
    this.#shell = undefined;
    this.#restarts += 1;
    this.#lossUntold = true;
    if (this.#ending.signal.aborted) return;
    this.#past.push(shell);
    if (this.#past.length > maxPast) this.#past.shift()?.release();
  }
}
