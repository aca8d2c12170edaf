import { DSecError } from "../../../protocol/errors.ts";
import type { ErrorCode } from "../../../protocol/errors.ts";

/** HTTP status of a refusal by the Docker daemon; undefined for any other error. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && "statusCode" in error && typeof error.statusCode === "number"
    ? error.statusCode
    : undefined;
}

/** Codes of a connection that broke. */
const broken: ReadonlySet<unknown> = new Set(["ECONNRESET", "EPIPE", "ETIMEDOUT"]);

/** System error code, e.g. ENOENT, where the Docker daemon could not be spoken to. */
export function connectionCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return undefined;
  const connecting = "syscall" in error && error.syscall === "connect";
  return connecting || broken.has(error.code) ? error.code : undefined;
}

/** A failed call to the Docker daemon as an error of dsec. Errors of dsec pass unchanged. */
export function asDSecError(error: unknown, fallback: ErrorCode, sentence: string): DSecError {
  if (error instanceof DSecError) return error;
  if (connectionCode(error) !== undefined) {
    return new DSecError("backend_unavailable", "the Docker daemon does not answer", { cause: error });
  }
  if (error instanceof Error && error.message.includes("no space left on device")) {
    return new DSecError("disk_full", "the Docker daemon has no disk space left", { cause: error });
  }
  return new DSecError(fallback, sentence, { cause: error });
}
