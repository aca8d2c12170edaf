import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import type { Clock } from "../clock.ts";
import { execDefaults, type NodeEnvironment } from "../exec/exec-defaults.ts";
import type { Journal } from "../journal/journal.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import { Sessions } from "./sessions.ts";
import { shells } from "./shells.ts";

export interface NodeSessionsParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly nodeEnvironment: NodeEnvironment;
  readonly journal: Pick<Journal, "sessions" | "addSession" | "removeSession">;
}

/** Milliseconds in which a shell must do what the daemon tells it. */
const graceMs = 15_000;

/** The sessions of each sandbox of this node, for as long as its entry lives. */
export class NodeSessions {
  readonly #parts: NodeSessionsParts;
  readonly #sessions = new WeakMap<SandboxEntry, Sessions>();

  constructor(parts: NodeSessionsParts) {
    this.#parts = parts;
  }

  of(entry: SandboxEntry): Sessions {
    const known = this.#sessions.get(entry);
    if (known !== undefined) return known;
    const { clock, journal, nodeEnvironment } = this.#parts;
    const sessions = new Sessions(
      {
        guest: () => entry.requireRunning().guest,
        defaults: () => execDefaults(entry, entry.requireRunning(), nodeEnvironment),
        remember: (name, exists) => this.#remember(entry, name, exists),
        newNonce: () => randomBytes(12).toString("base64url"),
        drivers: shells,
        clock,
        graceMs,
      },
      journal.sessions(entry.id),
    );
    this.#sessions.set(entry, sessions);
    return sessions;
  }

  /** A full disk must not harm a sandbox that runs: at worst, a lost shell is not told of after a restart. */
  #remember(entry: SandboxEntry, name: string, exists: boolean): void {
    const { journal, log } = this.#parts;
    try {
      if (exists) journal.addSession(entry.id, name);
      else journal.removeSession(entry.id, name);
    } catch (error) {
      log.warn({ err: error, sandbox: entry.id, session: name }, "a session could not be written down");
    }
  }
}
