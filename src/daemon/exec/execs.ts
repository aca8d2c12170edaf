import type { Logger } from "pino";
import type { GuestExec, GuestExecSpec, GuestExit } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import { type ExecExit, type ExecRecord, ExecSpec } from "../../protocol/exec.ts";
import type { ShellSpec } from "../../protocol/session.ts";
import type { Activity } from "../deadlines/activity.ts";
import type { Clock } from "../clock.ts";
import type { Journal } from "../journal/journal.ts";
import type { Metrics } from "../metrics.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { NodeSessions } from "../sessions/node-sessions.ts";
import { within } from "../within.ts";
import { execDefaults, type ExecDefaults, type NodeEnvironment } from "./exec-defaults.ts";
import { ExecHistory } from "./exec-history.ts";
import { isJournaled, isRecorded } from "./exec-policy.ts";
import { execExit, type ExitCircumstances, mayBeOom } from "./exit.ts";
import { LiveExec, type OutputTarget } from "./live-exec.ts";
import type { ExecRecorder } from "./recorder.ts";
import type { Recordings } from "./recordings.ts";

export interface ExecsParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly journal: Journal;
  readonly metrics: Metrics;
  readonly activity: Pick<Activity, "execsChanged">;
  readonly recordings: Recordings;
  readonly sessions: NodeSessions;
  readonly newId: () => string;
  readonly nodeEnvironment: NodeEnvironment;
  /** The exec that the sandbox was to end with has ended; `exit` is undefined when its exit is unknown. */
  readonly endsWith: (entry: SandboxEntry, exec: LiveExec, exit: ExecExit | undefined) => void;
  /** Milliseconds between SIGTERM and SIGKILL when a sandbox is stopped. */
  readonly stopGraceMs: number;
}

const sigterm = 15;
/** Milliseconds that killed execs get to drain before their sandbox is destroyed. */
const drainMs = 2000;
/** Milliseconds to wait for the backend's word on why a guest was lost. */
const verdictMs = 2000;

type Signs = Omit<ExitCircumstances, "now">;
const nothingAmiss: Signs = { oomRose: false, diskFull: false };

/** The execs of this node: started, watched to their end, recorded, and written down. */
export class Execs {
  readonly history: ExecHistory;
  readonly #parts: ExecsParts;
  #closed = false;

  constructor(parts: ExecsParts) {
    this.#parts = parts;
    this.history = new ExecHistory(parts);
  }

  /**
   * Starts a process; resolves when it has started.
   * @throws DSecError `sandbox_not_running`, and what the guest says of the command
   */
  async start(entry: SandboxEntry, spec: ExecSpec, target?: OutputTarget): Promise<LiveExec> {
    const running = entry.requireRunning();
    const defaults = execDefaults(entry, running, this.#parts.nodeEnvironment);
    return this.#begin(entry, spec, target, async ({ sink }) =>
      running.guest.exec(guestSpec(defaults, spec), sink),
    );
  }

  /**
   * Runs a command in a session; resolves when its turn has come.
   * @param signal gives up waiting
   * @throws DSecError `sandbox_not_running`, `session_limit`, `no_such_cwd`, `no_such_user`, `conflict`
   */
  async startShell(
    entry: SandboxEntry,
    spec: ShellSpec,
    target: OutputTarget,
    signal: AbortSignal,
  ): Promise<LiveExec> {
    entry.requireRunning();
    const plain = shellExecSpec(spec);
    if (entry.backend?.capabilities.realProcesses === false) {
      // simulated shells have no state to keep
      const exec = await this.start(entry, plain, target);
      exec.session = { name: spec.session, shell: "kept" };
      return exec;
    }
    return this.#begin(entry, plain, target, async (exec) => {
      const command = await this.#parts.sessions.of(entry).begin(spec, exec.sink, signal);
      command.ended.then(({ session }) => (exec.session = session)).catch(() => undefined);
      return command;
    });
  }

  async #begin(
    entry: SandboxEntry,
    spec: ExecSpec,
    target: OutputTarget | undefined,
    begin: (exec: LiveExec) => Promise<GuestExec>,
  ): Promise<LiveExec> {
    const { clock, metrics, recordings, newId, activity } = this.#parts;
    const startedAt = clock.now();
    const id = newId();
    let recorder: ExecRecorder | undefined;
    entry.execsStarting += 1;
    activity.execsChanged(entry);
    try {
      if (isRecorded(spec)) recorder = await recordings.create(entry.id, id);
      const exec = new LiveExec({ id, spec, startedAt, recorder, target });
      const guest = await begin(exec);
      this.#watch(entry, exec, guest);
      metrics.execStarted(clock.now() - startedAt);
      if (isJournaled(spec)) this.history.started(entry, exec);
      return exec;
    } catch (error) {
      // nobody would know of a command that runs and could not be written down
      entry.execs.get(id)?.kill("refusal");
      await recorder?.close();
      if (recorder !== undefined && !entry.execs.has(id)) await recordings.remove(entry.id, id);
      throw error;
    } finally {
      entry.execsStarting -= 1;
      if (entry.activeExecs === 0) activity.execsChanged(entry);
    }
  }

  /** Takes up an exec that was started by an earlier daemon. */
  adopt(entry: SandboxEntry, exec: LiveExec, guest: GuestExec): void {
    this.#watch(entry, exec, guest);
  }

  /** Writes down that an exec of an earlier daemon is not there any more. */
  async vanished(entry: SandboxEntry, exec: LiveExec): Promise<void> {
    await exec.recorder?.close();
    this.history.ended(entry, exec, undefined);
    this.#endSandbox(entry, exec, undefined);
    exec.finish.reject(new DSecError("agent_lost", "the command was gone after a restart of the daemon"));
  }

  /** Asks every exec of a sandbox to end, then makes it; returns when they have drained or the time for it is over. */
  async endAll(entry: SandboxEntry): Promise<void> {
    const { clock, stopGraceMs } = this.#parts;
    const execs = [...entry.execs.values()];
    if (execs.length === 0) return;
    const ended = Promise.allSettled(execs.map(async (exec) => exec.done));
    for (const exec of execs) exec.killedBy ??= "stop";
    for (const exec of execs) exec.guest?.signal(sigterm, "tree");
    if ((await within(clock, stopGraceMs, ended)) !== "late") return;
    for (const exec of execs) exec.kill("stop");
    await within(clock, drainMs, ended);
  }

  /** Running ones and what is known of ended ones, oldest first. */
  list(entry: SandboxEntry): ExecRecord[] {
    return this.history.list(entry);
  }

  /** From now on lost guests mean that this daemon lets go of them, not that commands ended. */
  close(): void {
    this.#closed = true;
  }

  #watch(entry: SandboxEntry, exec: LiveExec, guest: GuestExec): void {
    exec.guest = guest;
    entry.execs.set(exec.id, exec);
    guest.exit
      .then(
        async (exit) => this.#exited(entry, exec, guest, exit),
        async (error: unknown) => this.#lost(entry, exec, error),
      )
      .catch((error: unknown) => {
        this.#parts.log.error(
          { err: error, sandbox: entry.id, exec: exec.id },
          "the end of an exec could not be handled",
        );
        this.#over(entry, exec);
        exec.finish.reject(
          new DSecError("internal", "the end of the command could not be handled", { cause: error }),
        );
      });
  }

  async #exited(entry: SandboxEntry, exec: LiveExec, guest: GuestExec, exit: GuestExit): Promise<void> {
    if (exec.recorder !== undefined) await exec.recorder.close();
    const isPlain = exit.code === 0 && exit.signal === undefined;
    const signs = isPlain ? nothingAmiss : await this.#signs(entry, exit);
    const known = execExit(exec, exit, { ...signs, now: this.#parts.clock.now() });
    this.history.ended(entry, exec, known);
    this.#parts.metrics.execEnded(known.cause, known.durationMs);
    this.#over(entry, exec);
    this.#endSandbox(entry, exec, known);
    exec.finish.resolve(known);
    guest.release();
  }

  async #lost(entry: SandboxEntry, exec: LiveExec, cause: unknown): Promise<void> {
    const { clock, metrics } = this.#parts;
    if (exec.recorder !== undefined) await exec.recorder.close();
    if (this.#closed) return;
    const verdict =
      entry.running === undefined ? "late" : await within(clock, verdictMs, entry.running.ended);
    this.history.ended(entry, exec, undefined);
    metrics.execEnded("lost", clock.now() - exec.startedAt);
    this.#over(entry, exec);
    this.#endSandbox(entry, exec, undefined);
    exec.finish.reject(lostError(entry, verdict === "late" ? undefined : verdict.value, cause));
  }

  /** A command whose start was refused after all is not the one that the sandbox was to end with. */
  #endSandbox(entry: SandboxEntry, exec: LiveExec, exit: ExecExit | undefined): void {
    if (exec.spec.endsSandbox && exec.killedBy !== "refusal") this.#parts.endsWith(entry, exec, exit);
  }

  #over(entry: SandboxEntry, exec: LiveExec): void {
    if (entry.execs.delete(exec.id)) this.#parts.activity.execsChanged(entry);
  }

  /** Of a sandbox that has gone meanwhile there are none; how the command ended is known all the same. */
  async #signs(entry: SandboxEntry, exit: GuestExit): Promise<Signs> {
    try {
      const diskFull = exit.code !== 0 && (await (entry.prepared?.diskFull() ?? false));
      if (!mayBeOom(exit) || entry.running === undefined) return { oomRose: false, diskFull };
      const { oomKills } = await entry.running.usage();
      const oomRose = oomKills > entry.oomKills;
      entry.oomKills = oomKills;
      return { oomRose, diskFull };
    } catch (error) {
      this.#parts.log.warn({ err: error, sandbox: entry.id }, "why a command ended could not be looked up");
      return nothingAmiss;
    }
  }
}

function guestSpec(defaults: ExecDefaults, spec: ExecSpec): GuestExecSpec {
  const { cwd = defaults.cwd, user = defaults.user } = spec;
  return {
    argv: spec.argv,
    env: { ...defaults.env, ...spec.env },
    stdin: spec.stdin,
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
    ...(spec.tty === undefined ? {} : { tty: spec.tty }),
    ...(spec.timeoutMs === 0 ? {} : { timeoutMs: spec.timeoutMs }),
  };
}

/** The exec that a session's command is listed as. */
function shellExecSpec({ command, env, cwd, user, timeoutMs }: ShellSpec): ExecSpec {
  return ExecSpec.parse({ argv: ["/bin/sh", "-c", command], env, cwd, user, timeoutMs });
}

function lostError(
  entry: SandboxEntry,
  end: { readonly reason: string; readonly message: string } | undefined,
  cause: unknown,
): DSecError {
  if (end !== undefined)
    return new DSecError("agent_lost", `the sandbox was lost while the command ran: ${end.message}`, {
      cause,
      ambiguous: true,
      details: { reason: end.reason },
    });
  if (entry.record.state !== "running")
    return new DSecError("sandbox_not_running", "the sandbox was stopped while the command ran", {
      cause,
      ambiguous: true,
      details: { state: entry.record.state },
    });
  return new DSecError("agent_lost", "the connection to the sandbox was lost while the command ran", {
    cause,
    ambiguous: true,
  });
}
