import { DSecError } from "../../protocol/errors.ts";

/** Who is at the other end; decides the code of an error to connect. */
export type Peer = "coordinator" | "node";

/** How far a request got before it failed. */
export interface Progress {
  readonly peer: Peer;
  readonly address: string;
  /** The connection stood, so the request may have been read. */
  readonly connected: boolean;
  /** Whether the request changes anything: one that only reads is never ambiguous. */
  readonly changes: boolean;
}

/** The error for a request that got no (whole) answer because of the connection. */
export function connectionError(error: unknown, progress: Progress): DSecError {
  if (error instanceof DSecError) return error;
  const { peer, address, connected, changes } = progress;
  const options = { cause: error, details: { address } };
  if (connected)
    return new DSecError("connection_lost", `the connection to the ${peer} at ${address} was lost`, {
      ...options,
      ambiguous: changes,
    });
  const errno = errnoOf(error);
  if (errno === "EACCES" || errno === "EPERM")
    return new DSecError(
      "permission_denied",
      `connecting to the ${peer} at ${address} is not permitted`,
      options,
    );
  return new DSecError(`${peer}_unreachable`, `no ${peer} answers at ${address}`, options);
}

/** The error for a request that its caller gave up. */
export function cancelledError(reason: unknown, progress: Progress): DSecError {
  if (reason instanceof DSecError)
    return new DSecError(reason.code, reason.message, {
      ambiguous: reason.ambiguous || isAmbiguous(progress),
      ...(reason.details === undefined ? {} : { details: reason.details }),
      cause: reason.cause,
    });
  return new DSecError("cancelled", "the request was cancelled", {
    ambiguous: isAmbiguous(progress),
    cause: reason,
  });
}

/** The error for a peer that took too long. */
export function timeoutError(timeoutMs: number, progress: Progress): DSecError {
  const { peer, address, connected } = progress;
  const details = { address, timeoutMs };
  if (connected)
    return new DSecError(
      "connection_lost",
      `the ${peer} at ${address} gave no answer within ${timeoutMs} ms`,
      {
        ambiguous: isAmbiguous(progress),
        details,
      },
    );
  return new DSecError(
    `${peer}_unreachable`,
    `no connection to the ${peer} at ${address} within ${timeoutMs} ms`,
    { details },
  );
}

function isAmbiguous({ connected, changes }: Progress): boolean {
  return connected && changes;
}

/** Nothing was sent and the cause passes by itself: any request may be tried again. */
export function isTransient(error: DSecError): boolean {
  const errno = errnoOf(error.cause);
  return errno === "EAGAIN" || errno === "EMFILE" || errno === "ETIMEDOUT" || errno === "EADDRNOTAVAIL";
}

function errnoOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
