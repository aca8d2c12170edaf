import { DSecError, errorTable, isErrorCode } from "./errors.ts";
import type { Problem } from "./problem.ts";

export const problemContentType = "application/problem+json";

/** Renders any thrown value; what is no {@link DSecError} becomes `internal`. */
export function toProblem(error: unknown): Problem {
  const known =
    error instanceof DSecError
      ? error
      : new DSecError("internal", messageOf(error), { cause: causeOf(error) });
  const row = errorTable[known.code];
  const chain = causeChain(known);
  return {
    type: `urn:dsec:error:${known.code}`,
    title: known.message,
    status: row.status,
    code: known.code,
    retryable: row.retryable,
    ambiguous: known.ambiguous,
    ...(known.retryAfterMs === undefined ? {} : { retryAfterMs: known.retryAfterMs }),
    ...(known.details === undefined ? {} : { details: { ...known.details } }),
    ...(chain.length === 0 ? {} : { chain }),
  };
}

/** Rebuilds the error a server sent. A code this client does not know becomes `internal`. */
export function fromProblem(problem: Problem): DSecError {
  const code = isErrorCode(problem.code) ? problem.code : "internal";
  const cause = (problem.chain ?? []).reduceRight<Error | undefined>(
    (inner, message) => new Error(message, inner ? { cause: inner } : undefined),
    undefined,
  );
  return new DSecError(code, problem.title, {
    ambiguous: problem.ambiguous,
    ...(problem.retryAfterMs === undefined ? {} : { retryAfterMs: problem.retryAfterMs }),
    ...(problem.details === undefined ? {} : { details: problem.details }),
    ...(cause === undefined ? {} : { cause }),
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function causeOf(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined;
}

function causeChain(error: Error): string[] {
  const messages: string[] = [];
  for (let cause = error.cause; cause !== undefined && messages.length < 8; cause = causeOf(cause))
    messages.push(messageOf(cause));
  return messages;
}
