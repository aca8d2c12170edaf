import { DSecError } from "../protocol/errors.ts";
import type { ErrorCode } from "../protocol/errors.ts";
import { toProblem } from "../protocol/problem-codec.ts";
import type { Io } from "./io.ts";
import { printable } from "./printable.ts";
import type { Paint } from "./theme.ts";

/** What the reader can do about an error. */
const hints: Partial<Record<ErrorCode, string>> = {
  ambiguous_reference: "give more characters of the id, or the whole name",
  already_running: "`dsec down` ends it; --run-dir, --data-dir and --instance keep a second fleet apart",
  backend_unavailable: "`dsec doctor` says what is missing and how to mend it",
  coordinator_unreachable:
    "`dsec up -d` starts a local fleet; `dsec config get-contexts` shows which one is used",
  image_not_found: "`dsec layer ls` lists what is there; `dsec layer build` and `dsec layer import` make one",
  name_taken: "the name of an ended sandbox is free again after `dsec rm NAME`",
  network_policy_unsupported:
    "leave out --allow and --network-policy, or choose an engine whose network dsec makes",
  no_capacity:
    "`dsec nodes` shows what is taken and `dsec doctor` what does not work; `dsec reclaim` ends idle sandboxes",
  no_such_cwd: "--workdir must exist inside the sandbox",
  sandbox_not_running: "`dsec inspect` says why it ended",
  unknown_registry: "`dsec registries` lists what names the nodes know; a domain needs a dot in it",
  unauthenticated: "each fleet has a token of its own: see --token-file and `dsec config view`",
};

const systemErrors: Readonly<Record<string, ErrorCode>> = {
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  EROFS: "permission_denied",
  EISDIR: "config_invalid",
  ENOTDIR: "config_invalid",
  EEXIST: "config_invalid",
  ELOOP: "config_invalid",
  ENAMETOOLONG: "config_invalid",
  ENOSPC: "disk_full",
  EDQUOT: "disk_full",
};

/** Any thrown value as a {@link DSecError}; what is none of ours is `internal`. */
export function asDSecError(error: unknown): DSecError {
  if (error instanceof DSecError) return error;
  if (error instanceof Error) {
    const code = "code" in error ? (systemErrors[String(error.code)] ?? "internal") : "internal";
    return new DSecError(code, error.message, { cause: error.cause });
  }
  return new DSecError("internal", String(error));
}

/** One error on stderr: a line, its causes and a hint; or one JSON object. */
export function reportError(
  error: DSecError,
  io: Io,
  options: { readonly json: boolean; readonly paint: Paint },
): void {
  io.stderr.write(options.json ? `${errorJson(error)}\n` : errorText(error, options.paint));
}

function errorJson(error: DSecError): string {
  const { code, retryable, ambiguous, retryAfterMs, details, chain } = toProblem(error);
  const { message } = error;
  const hint = hints[error.code];
  return printable(
    JSON.stringify({ code, message, retryable, ambiguous, retryAfterMs, details, causes: chain, hint }),
  );
}

function errorText(error: DSecError, paint: Paint): string {
  const lines = [`${paint("dsec:", "bad")} ${printable(error.message)} ${paint(`(${error.code})`, "muted")}`];
  for (const cause of toProblem(error).chain ?? []) lines.push(`  because: ${indented(cause)}`);
  if (error.ambiguous) lines.push("  the outcome is unknown: it may have taken effect");
  const hint = hints[error.code];
  if (hint !== undefined) lines.push(`  ${paint("hint:", "warning")} ${hint}`);
  return `${lines.join("\n")}\n`;
}

/** Causes may be of several lines, e.g. a place in a file with a pointer to it. */
function indented(text: string): string {
  return text.split("\n").map(printable).join("\n    ");
}
