import { readFileSync } from "node:fs";
import { DSecError } from "../protocol/errors.ts";

/** What Node makes of bytes that are not UTF-8; it can also have been typed. */
const replacement = "\u{FFFD}";

/**
 * Node replaces bytes of arguments that are not UTF-8 without a word: another file would be read, another command run.
 * @param commandLine the arguments of the process as the kernel has them; read only where it may matter
 * @throws DSecError `invalid_argument` naming the first that was changed
 */
export function checkArguments(argv: readonly string[], commandLine: () => Uint8Array = readOwn): void {
  if (!argv.some((argument) => argument.includes(replacement))) return;
  const raw = Buffer.from(commandLine()).toString("latin1").split("\0").slice(0, -1).slice(-argv.length);
  const index = argv.findIndex(
    (argument, at) => argument.includes(replacement) && wasChanged(argument, raw[at] ?? ""),
  );
  if (index < 0) return;
  const message = `argument ${index + 1} is not UTF-8; pass it through a file, or as $'…' to a shell inside`;
  throw new DSecError("invalid_argument", message);
}

/** Whether `bytes`, one a character, are what `argument` was made of, and were not what it says. */
function wasChanged(argument: string, bytes: string): boolean {
  const raw = Buffer.from(bytes, "latin1");
  return raw.toString("utf8") === argument && !raw.equals(Buffer.from(argument, "utf8"));
}

function readOwn(): Uint8Array {
  try {
    return readFileSync("/proc/self/cmdline");
  } catch {
    // not Linux: a client elsewhere has no way to know
    return new Uint8Array();
  }
}
