/**
 * The C library, called directly: the few system calls that Node lacks. A call is synchronous, unless it is made on a thread, and costs
 * one to two microseconds beside the system call itself.
 */
import { getSystemErrorMessage, getSystemErrorName } from "node:util";
import koffi from "koffi";

/** A system call that failed. `code` is the errno's name, as in Node's own errors. */
export class LinuxError extends Error {
  override readonly name = "LinuxError";
  readonly code: string;
  readonly errno: number;
  readonly syscall: string;

  /**
   * @param errno positive, as in errno(3)
   * @param subject what the call was about, e.g. a path
   */
  constructor(syscall: string, errno: number, subject?: string) {
    const code = getSystemErrorName(-errno);
    super(
      `${code}: ${getSystemErrorMessage(-errno)}, ${syscall}${subject === undefined ? "" : ` '${subject}'`}`,
    );
    this.code = code;
    this.errno = errno;
    this.syscall = syscall;
  }
}

/** Whether `error` is a failed system call, of Node's or of ours, with one of these errno names. */
export function isErrno(error: unknown, ...codes: readonly string[]): boolean {
  return (
    error instanceof Error && "code" in error && typeof error.code === "string" && codes.includes(error.code)
  );
}

/** What a bound function takes: integers, strings, memory, null for a null pointer, arrays of strings that end with null. */
export type LibcArgument = number | bigint | string | Uint8Array | readonly (string | null)[] | null;

export interface LibcFunction<Arguments extends readonly LibcArgument[]> {
  /** @throws LinuxError when the call returns -1 */
  (...args: Arguments): number;
  /** The same; `subject` (a path, say) is named in the error. */
  about(subject: string, ...args: Arguments): number;
  /**
   * The same on a thread of libuv's pool, for calls that wait inside the kernel. errno stays with that thread: a call that failed is made once
   * more on this one, fails again and says why, so it must be one that may be repeated.
   */
  onThread(subject: string, ...args: Arguments): Promise<number>;
}

let processImage: ReturnType<typeof koffi.load> | undefined;

/** Calls on threads at a time: libuv has four threads, and koffi refuses what is far beyond them. */
const mostOnThreads = 8;
let onThreads = 0;
const forThread: (() => void)[] = [];

async function takeThread(): Promise<void> {
  if (onThreads === mostOnThreads) await new Promise<void>((resolve) => forThread.push(resolve));
  else onThreads += 1;
}

function leaveThread(): void {
  const next = forThread.shift();
  if (next === undefined) onThreads -= 1;
  else next();
}

/**
 * Binds a function of the C library that returns an integer and sets errno when it returns -1. It is looked up at its first call, so
 * that importing costs nothing and works on any system.
 *
 * @param name for errors, too
 * @param symbol where it differs from the name: `syscall` for what the C library does not wrap
 * @param parameters C types. A variadic function is bound with the parameters it is called with: on Linux x86-64 and arm64 the convention for integers and pointers is the same.
 */
export function libcFunction<Arguments extends readonly LibcArgument[]>(
  name: string,
  parameters: readonly string[],
  symbol = name,
): LibcFunction<Arguments> {
  let bound: ReturnType<ReturnType<typeof koffi.load>["func"]> | undefined;
  const bind = () => {
    processImage ??= koffi.load(null);
    bound ??= processImage.func(`int ${symbol}(${parameters.join(", ")})`);
    return bound;
  };
  const invoke = (subject: string | undefined, args: Arguments): number => {
    const result: number = bind()(...args);
    if (result === -1) throw new LinuxError(name, koffi.errno(), subject);
    return result;
  };
  return Object.assign((...args: Arguments) => invoke(undefined, args), {
    about: (subject: string, ...args: Arguments) => invoke(subject, args),
    onThread: async (subject: string, ...args: Arguments) => {
      await takeThread();
      try {
        const { promise, resolve, reject } = Promise.withResolvers<number>();
        bind().async(...args, (error: Error | null, result: number) => {
          if (error === null) resolve(result);
          else reject(error);
        });
        const result = await promise;
        return result === -1 ? invoke(subject, args) : result;
      } finally {
        leaveThread();
      }
    },
  });
}

const syscallFunction = libcFunction<readonly [number, ...LibcArgument[]]>("syscall", [
  "long",
  "long",
  "long",
  "long",
  "long",
  "long",
  "long",
]);

/**
 * A system call by its number, for those that the C library does not wrap. At most six integer arguments. The result must fit an int.
 *
 * @param name for errors
 * @throws LinuxError
 */
export function rawSyscall(name: string, number: number, ...args: readonly number[]): number {
  try {
    return syscallFunction(number, ...args, ...Array<number>(6 - args.length).fill(0));
  } catch (error) {
    if (error instanceof LinuxError) throw new LinuxError(name, error.errno);
    throw error;
  }
}

const ioctlFunction = libcFunction<[number, number | bigint, Uint8Array | null]>("ioctl", [
  "int fd",
  "unsigned long request",
  "void *argument",
]);

/**
 * ioctl(2) with a pointer to memory that the kernel reads or fills.
 *
 * @param name of the request, for errors
 * @throws LinuxError
 */
export function ioctl(
  name: string,
  fd: number,
  request: number | bigint,
  argument: Uint8Array | null,
): number {
  return ioctlFunction.about(name, fd, request, argument);
}

/** {@link ioctl} for what may take long. @throws LinuxError */
export async function ioctlOnThread(
  name: string,
  fd: number,
  request: number | bigint,
  argument: Uint8Array,
): Promise<void> {
  await ioctlFunction.onThread(name, fd, request, argument);
}

const closeFunction = libcFunction<[number]>("close", ["int fd"]);

/** Closes a descriptor that a raw call opened. @throws LinuxError */
export function closeDescriptor(fd: number): void {
  closeFunction(fd);
}
