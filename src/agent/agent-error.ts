/** Failures that the agent reports, as errors of dsec's table. */
import { constants } from "node:os";
import { getSystemErrorMessage, getSystemErrorName } from "node:util";
import { DSecError, type ErrorCode } from "../protocol/errors.ts";

export interface AgentFailure {
  readonly code: number;
  readonly errno: number;
  readonly message: string;
}

export function readFailure(payload: Buffer): AgentFailure {
  return {
    code: payload.readUInt32LE(0),
    errno: payload.readUInt32LE(4),
    message: payload.toString("utf8", 8),
  };
}

/** Linux has more than Node has messages for. */
const errnoNames = new Map<number, string>([[constants.errno.EDQUOT, "EDQUOT"]]);

/** `ENOENT` and so on; undefined for 0. */
export function errnoName(errno: number): string | undefined {
  if (errno <= 0) return undefined;
  return errnoNames.get(errno) ?? getSystemErrorName(-errno);
}

function errnoText(errno: number): string {
  // of those that Node has no words for, the one that matters
  return errno === constants.errno.EDQUOT ? "disk quota exceeded" : getSystemErrorMessage(-errno);
}

const SYSTEM = 7;

const general: Readonly<Record<number, ErrorCode>> = {
  1: "invalid_argument",
  2: "no_such_user",
  3: "no_such_cwd",
  4: "command_not_found",
  5: "command_not_executable",
  6: "start_failed",
  7: "start_failed",
  8: "not_found",
  9: "protocol_error",
  10: "file_error",
  11: "file_error",
};

/** What it is about: `sentence` begins the message and names the thing, e.g. `cannot run "foo"`. */
export interface Subject {
  readonly sentence: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** `system` is the code where a system call failed. */
export function agentError(failure: AgentFailure, subject: Subject, system?: ErrorCode): DSecError {
  const errno = errnoName(failure.errno);
  const code = failure.code === SYSTEM && system ? system : (general[failure.code] ?? "protocol_error");
  const reason = [
    ...(failure.code === SYSTEM ? [] : [failure.message]),
    ...(errno ? [`${errnoText(failure.errno)} (${errno})`] : []),
  ].join(": ");
  const details = errno ? { ...subject.details, errno } : subject.details;
  return new DSecError(code, `${subject.sentence}: ${reason}`, { details });
}

/** What was in flight when the connection went: it may have taken effect. */
export function agentLost(cause?: unknown): DSecError {
  const options = { ambiguous: true, ...(cause === undefined ? {} : { cause }) };
  return new DSecError("agent_lost", "the connection to the sandbox's agent was lost", options);
}
