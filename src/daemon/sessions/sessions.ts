import type { OutputSink } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { SessionInfo, ShellSpec } from "../../protocol/session.ts";
import { Session, type SessionParts } from "./session.ts";
import type { SessionCommand } from "./session-command.ts";

const maxSessions = 512;

/** The sessions of one sandbox. */
export class Sessions {
  readonly #parts: SessionParts;
  readonly #sessions = new Map<string, Session>();
  readonly #lost: Set<string>;

  /** @param lost names of sessions of an earlier daemon, whose shells are gone */
  constructor(parts: SessionParts, lost: Iterable<string>) {
    this.#parts = parts;
    this.#lost = new Set(lost);
  }

  /**
   * Begins a command in its session, which begins with its first command.
   * @throws DSecError `session_limit`, and as {@link Session.begin}
   */
  async begin(spec: ShellSpec, sink: OutputSink, signal: AbortSignal): Promise<SessionCommand> {
    const session = this.#sessions.get(spec.session) ?? this.#add(spec.session);
    try {
      return await session.begin(spec, sink, signal);
    } catch (error) {
      if (session.isUnused && this.#sessions.get(spec.session) === session)
        this.#sessions.delete(spec.session);
      throw error;
    }
  }

  /** In the order in which they began. */
  list(): SessionInfo[] {
    return [...this.#sessions.values()].map((session) => session.info());
  }

  /** Ends a session with every process it started. @throws DSecError `not_found` */
  async end(name: string): Promise<void> {
    const session = this.#sessions.get(name);
    if (session === undefined && !this.#lost.has(name))
      throw new DSecError("not_found", `there is no session ${name}`);
    this.#lost.delete(name);
    this.#sessions.delete(name);
    this.#parts.remember(name, false);
    await session?.end();
  }

  #add(name: string): Session {
    if (this.#sessions.size >= maxSessions)
      throw new DSecError("session_limit", `the sandbox has ${maxSessions} sessions already`);
    const session = new Session(name, this.#parts, this.#lost.has(name));
    this.#sessions.set(name, session);
    return session;
  }
}
