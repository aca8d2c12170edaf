import { DSecError } from "../protocol/errors.ts";
import type { ExecProcess } from "../sdk/exec-process.ts";
import type { Sandbox } from "../sdk/sandbox.ts";
import { attach } from "./attach.ts";
import type { AttachOptions } from "./attach.ts";
import { note } from "./io.ts";
import type { Io } from "./io.ts";
import type { Outcome } from "./outcome.ts";

/** Attaches to a command that goes on when it is left or its connection is lost, and says how to come back to it. */
export async function attachKept(
  command: ExecProcess,
  sandbox: Sandbox,
  io: Io,
  options: AttachOptions,
): Promise<Outcome> {
  const again = `dsec attach -i ${sandbox.id} ${command.execId}`;
  try {
    const left = await attach(command, io, options);
    if (left.type === "exit") return { type: "exit", code: left.exitCode };
  } catch (error) {
    if (error instanceof DSecError && error.code === "connection_lost")
      note(io, `the command goes on, as long as its sandbox does: ${again}`);
    throw error;
  }
  note(io, `detached; the command goes on: ${again}`);
  return { type: "exit", code: 0 };
}
