import type { OutputSink } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { SessionInfo, ShellSpec } from "../../protocol/session.ts";
import { Session, type SessionParts, type SessionRun } from "./session.ts";

const maxSessions = 512;

/** The sessions of one sandbox. */
export class Sessions {
  readonly #parts: SessionParts;
  readonly #sessions = new Map<string, Session>();

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /**
   * Runs a command in its session, which begins with its first command.
   * @throws DSecError `session_limit`, and as {@link Session.run}
   */
  async run(spec: ShellSpec, sink: OutputSink, signal: AbortSignal): Promise<SessionRun> {
    const session = this.#sessions.get(spec.session) ?? this.#begin(spec.session);
    try {
      return await session.run(spec, sink, signal);
    } finally {
      if (session.isUnused && this.#sessions.get(spec.session) === session)
        this.#sessions.delete(spec.session);
    }
  }

  /** In the order in which they began. */
  list(): SessionInfo[] {
    return [...this.#sessions.values()].map((session) => session.info());
  }

  /** Ends a session with every process it started. @throws DSecError `not_found` */
  async end(name: string): Promise<void> {
    const session = this.#sessions.get(name);
    if (session === undefined) throw new DSecError("not_found", `there is no session ${name}`);
    this.#sessions.delete(name);
    await session.end();
  }

  async endAll(): Promise<void> {
    await Promise.all([...this.#sessions.keys()].map(async (name) => this.end(name)));
  }

  #begin(name: string): Session {
    if (this.#sessions.size >= maxSessions)
      throw new DSecError("session_limit", `the sandbox has ${maxSessions} sessions already`);
    const session = new Session(name, this.#parts);
    this.#sessions.set(name, session);
    return session;
  }
}
