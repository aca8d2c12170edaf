import { DSecError } from "../protocol/errors.ts";
import type { ExecSpecInput } from "../protocol/exec.ts";

/** A command line, or all that an exec can be told. A command line is passed on exactly as given. */
export type Command = readonly string[] | ExecSpecInput;

export interface ExecOptions {
  /** Added to the sandbox's own. */
  readonly env?: Readonly<Record<string, string>>;
  /** Absolute path in the sandbox. */
  readonly cwd?: string;
  /** `name`, `uid`, `name:group` or `uid:gid`. */
  readonly user?: string;
  /** Milliseconds after which the whole process tree is killed; none by default. */
  readonly timeoutMs?: number;
  /** Cuts the exec's connection: the process is then killed, unless `onDisconnect` is `keep`. */
  readonly signal?: AbortSignal;
  /** Keep the output on the node, readable by `logs`, also after the sandbox's end. */
  readonly record?: boolean;
  readonly onDisconnect?: "kill" | "keep";
  /** The sandbox ends with this process. */
  readonly endsSandbox?: boolean;
}

export interface SpawnOptions extends ExecOptions {
  /** Whether stdin is a pipe; null stdin otherwise. */
  readonly stdin?: boolean;
  /** A terminal of this size; stdout and stderr are then one stream, `stdout`. */
  readonly tty?: { readonly rows: number; readonly cols: number };
}

/**
 * Refuses options that are none, as the server does with fields: a misspelt time limit must not be no limit.
 *
 * @throws DSecError `invalid_argument`
 */
export function refuseUnknown(options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  throw new DSecError("invalid_argument", `there is no option '${unknown}'; there are ${known.join(", ")}`);
}

export const spawnOptions = [
  "env",
  "cwd",
  "user",
  "timeoutMs",
  "signal",
  "record",
  "onDisconnect",
  "endsSandbox",
  "stdin",
  "tty",
] as const satisfies readonly (keyof SpawnOptions)[];

/** The wire's spec for a command and options; what stands in a spec that was given goes before the options. */
export function execSpec(command: Command, options: SpawnOptions): ExecSpecInput {
  const { env, cwd, user, timeoutMs, record, onDisconnect, endsSandbox, stdin, tty } = options;
  const given = {
    ...(env === undefined ? {} : { env }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(record === undefined ? {} : { record }),
    ...(onDisconnect === undefined ? {} : { onDisconnect }),
    ...(endsSandbox === undefined ? {} : { endsSandbox }),
    ...(stdin === undefined ? {} : { stdin }),
    ...(tty === undefined ? {} : { tty }),
  };
  return isArgv(command) ? { ...given, argv: [...command] } : { ...given, ...command };
}

function isArgv(command: Command): command is readonly string[] {
  return Array.isArray(command);
}
