/** Processes named so that a reused process id is never taken for the one that was meant. */
import { readFileSync } from "node:fs";
import { closeDescriptor, isErrno, rawSyscall } from "./libc.ts";

// The same numbers on every architecture.
const sysPidfdSendSignal = 424;
const sysPidfdOpen = 434;

export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks since boot, as /proc has it. */
  readonly startTime: number;
}

interface ProcessStat {
  /** One letter; Z and X are dead. */
  readonly state: string;
  readonly startTime: number;
}

/** Parses /proc/<pid>/stat. The command's name in it may contain anything, so fields count from its last parenthesis. */
export function parseProcessStat(text: string): ProcessStat {
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { state: fields[0] ?? "", startTime: Number(fields[19]) };
}

/** Undefined when there is no such process. */
function readProcessStat(pid: number): ProcessStat | undefined {
  try {
    return parseProcessStat(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}

/** Who has this process id now; undefined when no one has, or only a dead process that was not reaped yet. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  const stat = readProcessStat(pid);
  return stat === undefined || isDead(stat) ? undefined : { pid, startTime: stat.startTime };
}

/** Whether this very process still runs. A zombie does not. */
export function isAlive(process: ProcessIdentity): boolean {
  return identifyProcess(process.pid)?.startTime === process.startTime;
}

function isDead(stat: ProcessStat): boolean {
  return stat.state === "Z" || stat.state === "X";
}

/** Opens a pidfd; undefined when there is no such process. The caller closes it. @throws LinuxError */
export function openPidfd(pid: number): number | undefined {
  try {
    return rawSyscall("pidfd_open", sysPidfdOpen, pid, 0);
  } catch (error) {
    if (isErrno(error, "ESRCH")) return undefined;
    throw error;
  }
}

/** Signals the process that a pidfd stands for. False when it is gone. @throws LinuxError */
export function signalPidfd(pidfd: number, signal: number): boolean {
  try {
    rawSyscall("pidfd_send_signal", sysPidfdSendSignal, pidfd, signal, 0, 0);
    return true;
  } catch (error) {
    if (isErrno(error, "ESRCH")) return false;
    throw error;
  }
}

/** Signals this very process. False when it is gone, whoever has its id by now. @throws LinuxError */
export function signalProcess(process: ProcessIdentity, signal: number): boolean {
  const pidfd = openPidfd(process.pid);
  if (pidfd === undefined) return false;
  try {
    return isAlive(process) && signalPidfd(pidfd, signal);
  } finally {
    closeDescriptor(pidfd);
  }
}
