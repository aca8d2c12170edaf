/**
 * Starting a program by posix_spawn(3). Node's own spawn forks: it copies the page tables of the whole daemon and holds the event loop until
 * the child has run execve; that took 12 ms of a daemon of 200 MB, this takes less than one, on another thread.
 */
import { constants } from "node:os";
import { closeDescriptor, LinuxError, libcFunction } from "./libc.ts";

export interface ProgramExit {
  /** Undefined when a signal ended it. */
  readonly code: number | undefined;
  readonly signal: NodeJS.Signals | undefined;
}

export interface SpawnedProgram {
  readonly pid: number;
  readonly exited: Promise<ProgramExit>;
}

// Opaque to us; glibc has 80 and 336 bytes, musl no more.
const fileActionsBytes = 256;
const attributesBytes = 1024;
const signalSetBytes = 128;

const posixSpawn = libcFunction<
  [Uint8Array, string, Uint8Array, Uint8Array, readonly (string | null)[], readonly (string | null)[]]
>("posix_spawn", [
  "void *pid",
  "const char *path",
  "const void *actions",
  "const void *attributes",
  "const char **argv",
  "const char **env",
]);
const initActions = libcFunction<[Uint8Array]>("posix_spawn_file_actions_init", ["void *"]);
const destroyActions = libcFunction<[Uint8Array]>("posix_spawn_file_actions_destroy", ["void *"]);
const addDup2 = libcFunction<[Uint8Array, number, number]>("posix_spawn_file_actions_adddup2", [
  "void *",
  "int",
  "int",
]);
const fcntl = libcFunction<[number, number, number]>("fcntl", ["int", "int", "int"]);
const addCloseFrom = libcFunction<[Uint8Array, number]>("posix_spawn_file_actions_addclosefrom_np", [
  "void *",
  "int",
]);
const initAttributes = libcFunction<[Uint8Array]>("posix_spawnattr_init", ["void *"]);
const setFlags = libcFunction<[Uint8Array, number]>("posix_spawnattr_setflags", ["void *", "short"]);
const setDefaults = libcFunction<[Uint8Array, Uint8Array]>("posix_spawnattr_setsigdefault", [
  "void *",
  "void *",
]);
const fillSignals = libcFunction<[Uint8Array]>("sigfillset", ["void *"]);
const waitpid = libcFunction<[number, Uint8Array, number]>("waitpid", ["int", "void *status", "int"]);

/** A process group of its own; Node's ignored signals at their defaults; nothing masked. */
const spawnFlags = 0x02 | 0x04 | 0x08;
const noHang = 1;
/** F_DUPFD_CLOEXEC. */
const duplicateFrom = 1030;

/**
 * Starts a program in a process group of its own.
 *
 * @param path absolute
 * @param argv with the program's name first
 * @param descriptors become 0, 1, 2… of the child; nothing else is inherited. To stay open until this resolves
 * @throws LinuxError when it cannot be executed
 */
export async function spawnProgram(
  path: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
  descriptors: readonly number[],
): Promise<SpawnedProgram> {
  const actions = new Uint8Array(fileActionsBytes);
  // One that has a target's number would be overwritten before its turn.
  const moved = new Map<number, number>();
  initActions(actions);
  try {
    for (const fd of descriptors)
      if (fd < descriptors.length && !moved.has(fd))
        moved.set(fd, fcntl(fd, duplicateFrom, descriptors.length));
    for (const [target, fd] of descriptors.entries()) addDup2(actions, moved.get(fd) ?? fd, target);
    addCloseFrom(actions, descriptors.length);
    const pid = new Int32Array(1);
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    // On a thread: the caller waits until the child has executed.
    const errno = await posixSpawn.onThread(
      path,
      new Uint8Array(pid.buffer),
      path,
      actions,
      attributes(),
      [...argv, null],
      [...variables, null],
    );
    if (errno !== 0) throw new LinuxError("posix_spawn", errno, path);
    return { pid: at(pid), exited: exitOf(at(pid)) };
  } finally {
    destroyActions(actions);
    for (const copy of moved.values()) closeDescriptor(copy);
  }
}

let prepared: Uint8Array | undefined;

function attributes(): Uint8Array {
  if (prepared !== undefined) return prepared;
  const memory = new Uint8Array(attributesBytes);
  const signals = new Uint8Array(signalSetBytes);
  initAttributes(memory);
  fillSignals(signals);
  setDefaults(memory, signals);
  setFlags(memory, spawnFlags);
  prepared = memory;
  return memory;
}

/** Children that were not waited for yet. libuv waits for its own by their ids and leaves these alone. */
const children = new Map<number, (exit: ProgramExit) => void>();

function exitOf(pid: number): Promise<ProgramExit> {
  const { promise, resolve } = Promise.withResolvers<ProgramExit>();
  children.set(pid, resolve);
  if (!process.listeners("SIGCHLD").includes(reap)) process.on("SIGCHLD", reap);
  // It may have ended before anybody listened.
  reap();
  return promise;
}

function forgetChildren(): void {
  if (children.size === 0) process.off("SIGCHLD", reap);
}

function reap(): void {
  const status = new Int32Array(1);
  for (const [pid, resolve] of children) {
    if (waitpid(pid, new Uint8Array(status.buffer), noHang) !== pid) continue;
    children.delete(pid);
    resolve(decode(at(status)));
  }
  forgetChildren();
}

const signalNames = new Map(
  Object.entries(constants.signals).map(([name, number]) => [number, name as NodeJS.Signals]),
);

/** Of wait(2). */
function decode(status: number): ProgramExit {
  const signal = status & 0x7f;
  return signal === 0
    ? { code: (status >> 8) & 0xff, signal: undefined }
    : { code: undefined, signal: signalNames.get(signal) ?? "SIGKILL" };
}

function at(cell: Int32Array): number {
  return cell[0] ?? 0;
}
