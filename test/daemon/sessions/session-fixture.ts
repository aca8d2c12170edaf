import { randomBytes } from "node:crypto";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { OutputSink } from "../../../src/agent/guest.ts";
import { type Clock, systemClock } from "../../../src/daemon/clock.ts";
import { bashDriver } from "../../../src/daemon/sessions/bash-driver.ts";
import { posixDriver } from "../../../src/daemon/sessions/posix-driver.ts";
import type { SessionRun } from "../../../src/daemon/sessions/session-command.ts";
import type { ExecDefaults } from "../../../src/daemon/exec/exec-defaults.ts";
import { Sessions } from "../../../src/daemon/sessions/sessions.ts";
import type { ShellDriver } from "../../../src/daemon/sessions/shell-driver.ts";
import { ShellSpec, type ShellSpecInput } from "../../../src/protocol/session.ts";
import { type RunningAgent, startAgent } from "../../agent/agent-fixture.ts";

/** One driver a shell; `old-bash` is driven as bash before 5.1 is. */
export const testedShells: Readonly<Record<string, ShellDriver>> = {
  bash: bashDriver,
  "old-bash": {
    ...bashDriver,
    command: (command, env, _level, nonce) => bashDriver.command(command, env, 500, nonce),
  },
  dash: { ...posixDriver, argv: ["dash"] },
  ash: { ...posixDriver, argv: ["busybox", "ash"] },
};

export interface ShellRun extends SessionRun {
  readonly stdout: string;
  readonly stderr: string;
  readonly out: Buffer;
}

export interface SessionFixture extends AsyncDisposable {
  readonly agent: RunningAgent;
  readonly sessions: Sessions;
  /** Names that a later daemon would know of. */
  readonly remembered: ReadonlySet<string>;
  /** Where commands begin. */
  readonly directory: string;
  run(command: string, spec?: RunSpec, signal?: AbortSignal): Promise<ShellRun>;
}

export interface RunSpec extends Partial<ShellSpecInput> {
  /** The command's time is up as soon as its stdout is this, however slow the machine. */
  readonly expiresAt?: string;
}

export interface SessionLaunch {
  readonly driver: ShellDriver;
  readonly graceMs?: number;
  readonly defaults?: Partial<ExecDefaults>;
  /** Names an earlier daemon has left. */
  readonly lost?: readonly string[];
}

/** Timeouts from this one on come when they are told to. */
const firstExpiry = 1_000_000_000;

/** The clock of the machine, but for such timeouts. */
class ExpiryClock implements Clock {
  readonly #expiries = new Map<number, () => void>();
  #next = firstExpiry;

  now(): number {
    return systemClock.now();
  }

  after(ms: number, run: () => void): () => void {
    if (ms < firstExpiry) return systemClock.after(ms, run);
    this.#expiries.set(ms, run);
    return () => this.#expiries.delete(ms);
  }

  newTimeout(): number {
    return this.#next++;
  }

  expire(timeoutMs: number): void {
    this.#expiries.get(timeoutMs)?.();
  }
}

/** Begins a command and waits for its end. */
export async function runIn(
  sessions: Sessions,
  spec: ShellSpec,
  sink: OutputSink,
  signal: AbortSignal,
): Promise<SessionRun> {
  return (await sessions.begin(spec, sink, signal)).ended;
}

/** Sessions over a real agent. */
export async function startSessions({
  driver,
  graceMs = 15_000,
  defaults,
  lost = [],
}: SessionLaunch): Promise<SessionFixture> {
  const agent = await startAgent();
  const directory = await mkdtemp(join(tmpdir(), "dsec-session-"));
  await chmod(directory, 0o755);
  const guest = await agent.connect();
  const remembered = new Set(lost);
  const clock = new ExpiryClock();
  const parts = {
    guest: () => guest,
    remember(name: string, exists: boolean) {
      if (exists) remembered.add(name);
      else remembered.delete(name);
    },
    defaults: () => ({ env: {}, cwd: directory, ...defaults }),
    clock,
    newNonce: () => randomBytes(12).toString("base64url"),
    graceMs,
    drivers: [driver],
  };
  const sessions = new Sessions(parts, lost);
  return {
    agent,
    sessions,
    remembered,
    directory,
    async run(command, { expiresAt, ...given } = {}, signal = new AbortController().signal) {
      const timeoutMs = clock.newTimeout();
      const spec = expiresAt === undefined ? given : { ...given, timeoutMs };
      const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
      const offsets = { stdout: 0, stderr: 0 };
      const end = await runIn(
        sessions,
        ShellSpec.parse({ ...spec, command }),
        (stream, offset, chunk) => {
          if (offset !== offsets[stream]) throw new Error(`${stream} has a gap at ${offset}`);
          offsets[stream] += chunk.length;
          chunks[stream].push(Buffer.from(chunk));
          if (expiresAt !== undefined && Buffer.concat(chunks.stdout).toString() === expiresAt)
            clock.expire(timeoutMs);
        },
        signal,
      );
      const out = Buffer.concat(chunks.stdout);
      return { ...end, out, stdout: out.toString(), stderr: Buffer.concat(chunks.stderr).toString() };
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(sessions.list().map(async ({ name }) => sessions.end(name)));
      guest.close();
      await agent[Symbol.asyncDispose]();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
