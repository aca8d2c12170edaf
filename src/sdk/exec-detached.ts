import { DSecError } from "../protocol/errors.ts";
import type { ExecSpecInput } from "../protocol/exec.ts";
import { ExecConnection } from "./exec-connection.ts";
import { openExecSocket } from "./exec-socket.ts";
import type { Connection } from "./open-connection.ts";

/** Starts a recorded process and leaves it alone. @returns its exec id */
export async function detachExec(
  connection: Connection,
  ref: string,
  spec: ExecSpecInput,
  signal: AbortSignal | undefined,
): Promise<string> {
  const socket = await openExecSocket(connection, ref, signal);
  return new Promise((resolve, reject) => {
    const ended = (outcome: DSecError | { execId: string }): void => {
      if (outcome instanceof DSecError) reject(outcome);
      else resolve(outcome.execId);
    };
    ExecConnection.start(socket, { ...spec, detach: true }, { output: () => undefined, ended }, signal);
  });
}
