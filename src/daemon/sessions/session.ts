import type { Guest, OutputSink } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { SessionInfo, ShellSpec } from "../../protocol/session.ts";
import { Semaphore } from "../semaphore.ts";
import type { ExecDefaults } from "../exec/exec-defaults.ts";
import { SessionCommand, type SessionRun } from "./session-command.ts";
import { type CommandEnd, SessionShell, type ShellParts } from "./session-shell.ts";

export interface SessionParts extends ShellParts {
  /** @throws DSecError `sandbox_not_running` */
  readonly guest: () => Guest;
  readonly defaults: () => ExecDefaults;
  /** Notes for a later daemon that there is a session of this name, or no longer. */
  readonly remember: (name: string, exists: boolean) => void;
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
  #lossUntold: boolean;
  #lastUsedAt: number;

  /** @param isLost an earlier daemon had a session of this name, whose shell is gone */
  constructor(name: string, parts: SessionParts, isLost: boolean) {
    this.name = name;
    this.#parts = parts;
    this.#lossUntold = isLost;
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
   * Begins a command when those before it are over.
   * @param signal gives up waiting, and ends the command as a timeout does
   * @throws DSecError `session_limit` when too many wait, `conflict` for another user, `cancelled`, and what its shell throws
   */
  async begin(spec: ShellSpec, sink: OutputSink, signal: AbortSignal): Promise<SessionCommand> {
    if (this.#waiting > maxWaiting)
      throw new DSecError("session_limit", `${maxWaiting} commands wait in session ${this.name} already`);
    const kill = new AbortController();
    const either = AbortSignal.any([signal, this.#ending.signal, kill.signal]);
    this.#waiting += 1;
    let release: (() => void) | undefined;
    const over = (): void => {
      this.#waiting -= 1;
      release?.();
    };
    try {
      release = await this.#turn.acquire(either);
      const [shell, ended] = await this.#beginNow(spec, sink, either);
      return new SessionCommand(shell, ended.finally(over), kill);
    } catch (error) {
      over();
      throw error;
    }
  }

  /** Kills every process of the session; a command that runs ends with them. Resolves when its shell has ended. */
  async end(): Promise<void> {
    this.#ending.abort(new DSecError("cancelled", `session ${this.name} was ended`));
    for (const shell of this.#past.splice(0)) shell.sweep();
    await this.#shell?.end();
  }

  async #beginNow(
    spec: ShellSpec,
    sink: OutputSink,
    signal: AbortSignal,
  ): Promise<[SessionShell, Promise<SessionRun>]> {
    const shell = this.#shell ?? (await this.#start(spec.user));
    if (spec.user !== undefined && spec.user !== this.#user)
      throw new DSecError("conflict", `session ${this.name} is of another user`, {
        details: { user: this.#user },
      });
    signal.throwIfAborted();
    const { command: text, env, cwd, timeoutMs } = spec;
    const { ended } = await shell.begin({ text, env, cwd, timeoutMs }, sink, signal);
    const isFresh = this.#lossUntold;
    this.#lossUntold = false;
    this.#commands += 1;
    return [shell, this.#end(shell, isFresh, ended)];
  }

  async #end(shell: SessionShell, isFresh: boolean, ended: Promise<CommandEnd>): Promise<SessionRun> {
    const end = await ended;
    if (!shell.isAlive) await shell.ended;
    const isKept = shell.isAlive && !isFresh;
    // told with this command
    this.#lossUntold = false;
    this.#lastUsedAt = this.#parts.clock.now();
    return { ...end, session: { name: this.name, shell: isKept ? "kept" : "restarted" } };
  }

  async #start(asked: string | undefined): Promise<SessionShell> {
    const { user: usual, ...defaults } = this.#parts.defaults();
    const user = this.#user ?? asked ?? usual;
    const shell = await SessionShell.start(
      this.#parts.guest(),
      user === undefined ? defaults : { ...defaults, user },
      this.#parts,
    );
    this.#user = user;
    this.#shell = shell;
    if (this.#commands === 0) this.#parts.remember(this.name, true);
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
