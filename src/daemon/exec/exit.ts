import type { GuestExit } from "../../agent/guest.ts";
import type { EndReason } from "../../protocol/sandbox.ts";
import type { ExecExit } from "../../protocol/exec.ts";
import type { LiveExec } from "./live-exec.ts";
import { signalName } from "./signals.ts";

const timeoutCode = 124;
const sigkill = 9;
const killedCode = 128 + sigkill;

/** What is known of the sandbox at the moment an exec ended. */
export interface ExitCircumstances {
  /** The cgroup's count of out-of-memory kills has risen. */
  readonly oomRose: boolean;
  readonly diskFull: boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** Whether the end looks like one by the out-of-memory killer, itself or that of a command its shell waited for. */
export function mayBeOom(exit: GuestExit): boolean {
  return !exit.timedOut && (exit.signal === sigkill || exit.code === killedCode);
}

export function execExit(exec: LiveExec, exit: GuestExit, circumstances: ExitCircumstances): ExecExit {
  return {
    type: "exit",
    execId: exec.id,
    exitCode: exit.timedOut ? timeoutCode : exit.code,
    cause: causeOf(exec, exit, circumstances),
    ...(exit.signal === undefined ? {} : { signal: signalName(exit.signal) }),
    timedOut: exit.timedOut,
    diskFull: circumstances.diskFull,
    ...(exec.session === undefined ? {} : { session: exec.session }),
    stdoutBytes: exit.stdoutBytes,
    stderrBytes: exit.stderrBytes,
    durationMs: Math.max(0, circumstances.now - exec.startedAt),
  };
}

function causeOf(exec: LiveExec, exit: GuestExit, circumstances: ExitCircumstances): ExecExit["cause"] {
  if (exit.timedOut) return "timeout";
  if (mayBeOom(exit) && circumstances.oomRose) return "oom";
  if (exit.signal === undefined) return "exited";
  return exec.killedBy === undefined ? "signaled" : "killed";
}

/** Why a sandbox ends with the exec that it was to end with. */
export function endReasonOf(exit: ExecExit): EndReason {
  if (exit.cause === "oom") return "oom";
  return exit.diskFull && exit.exitCode !== 0 ? "disk_full" : "exited";
}
