import { DSecError } from "../protocol/errors.ts";
import { agentError, type AgentFailure, type Subject } from "./agent-error.ts";
import { Field, FieldWriter } from "./fields.ts";
import { FrameType, PAYLOAD_MAX } from "./frame.ts";
import type { GuestExecSpec } from "./guest.ts";

const TERMINAL = 1;
const STDIN = 2;

/** The error for an exec that could not be started, naming what was wrong with it. */
export function execError(spec: GuestExecSpec, failure: AgentFailure): DSecError {
  const command = spec.argv[0] ?? "";
  const sentence = `cannot run ${JSON.stringify(command)}`;
  const named: Readonly<Record<number, Subject>> = {
    2: { sentence: `${sentence} as ${JSON.stringify(spec.user)}`, details: { command, user: spec.user } },
    3: { sentence: `${sentence} in ${JSON.stringify(spec.cwd)}`, details: { command, cwd: spec.cwd } },
  };
  return agentError(failure, named[failure.code] ?? { sentence, details: { command } });
}

function text(fields: FieldWriter, tag: number, what: string, value: string): void {
  if (value.includes("\0")) throw new DSecError("invalid_argument", `${what} contains a zero byte`);
  fields.string(tag, value);
}

/**
 * An EXEC frame.
 *
 * @throws DSecError `invalid_argument` for what no process can be given.
 */
export function encodeExec(channel: number, spec: GuestExecSpec, window: number): Buffer {
  if (spec.argv.length === 0) throw new DSecError("invalid_argument", "the command is empty");
  const fields = new FieldWriter();
  for (const argument of spec.argv) text(fields, Field.argv, "an argument", argument);
  for (const [name, value] of Object.entries(spec.env)) {
    if (name === "" || name.includes("=")) {
      throw new DSecError("invalid_argument", `${JSON.stringify(name)} cannot be a variable's name`);
    }
    text(fields, Field.env, `the variable ${name}`, `${name}=${value}`);
  }
  if (spec.cwd !== undefined) {
    if (!spec.cwd.startsWith("/")) {
      throw new DSecError(
        "invalid_argument",
        `the working directory ${JSON.stringify(spec.cwd)} is not absolute`,
      );
    }
    text(fields, Field.cwd, "the working directory", spec.cwd);
  }
  if (spec.user !== undefined) {
    if (spec.user === "") throw new DSecError("invalid_argument", "the user is empty");
    text(fields, Field.user, "the user", spec.user);
  }
  fields.u32(Field.flags, (spec.tty ? TERMINAL : 0) | (spec.stdin ? STDIN : 0));
  if (spec.timeoutMs !== undefined) fields.u64(Field.timeout, Math.max(1, Math.ceil(spec.timeoutMs)));
  if (spec.tty) {
    const size = Buffer.allocUnsafe(4);
    size.writeUInt16LE(spec.tty.rows, 0);
    size.writeUInt16LE(spec.tty.cols, 2);
    fields.bytes(Field.size, size);
  }
  fields.u32(Field.window, window);
  if (fields.length > PAYLOAD_MAX) {
    throw new DSecError("invalid_argument", "the command and its environment are longer than 256 KiB");
  }
  return fields.toFrame(FrameType.exec, channel);
}
