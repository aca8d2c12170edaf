import type { GuestExec, GuestExit, SignalScope } from "../../agent/guest.ts";
import type { SessionOutcome } from "../../protocol/session.ts";
import type { CommandEnd, SessionShell } from "./session-shell.ts";

/** What a command came to, and its session. */
export interface SessionRun extends CommandEnd {
  readonly session: SessionOutcome;
}

const sigkill = 9;

/** A command that runs in a session, driven like a process of its own. */
export class SessionCommand implements GuestExec {
  /** None of its own: the shell's goes on. */
  readonly channel = 0;
  /** Of the shell. */
  readonly pid: number;
  /** Settles when all output is consumed and the session is ready for the next command. */
  readonly ended: Promise<SessionRun>;
  readonly exit: Promise<GuestExit>;
  readonly #shell: SessionShell;
  readonly #kill: AbortController;

  constructor(shell: SessionShell, ended: Promise<SessionRun>, kill: AbortController) {
    this.pid = shell.pid;
    this.#shell = shell;
    this.ended = ended;
    this.exit = ended.then(({ exit }) => exit);
    this.exit.catch(() => undefined);
    this.#kill = kill;
  }

  /** Its stdin is empty. */
  write(): Promise<void> {
    return Promise.resolve();
  }

  end(): void {}

  /** SIGKILL ends the command and leaves the session; another signal goes to the processes it began. */
  signal(signal: number, _scope: SignalScope): void {
    if (signal === sigkill) this.#kill.abort();
    else this.#shell.signal(signal);
  }

  resize(): void {}

  mark(): void {}

  release(): void {}
}
