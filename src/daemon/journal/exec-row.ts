import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { z } from "zod";
import { ExecExit, ExecSpec } from "../../protocol/exec.ts";

/** What the journal holds of an exec whose output or exit code outlives its client. */
export interface JournaledExec {
  readonly id: string;
  readonly sandbox: string;
  /** The agent's channel, by which it is found again after a restart. */
  readonly channel: number;
  readonly spec: ExecSpec;
  readonly state: "running" | "exited" | "lost";
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly endedAt: number | undefined;
  readonly exit: ExecExit | undefined;
}

const Row = z.object({
  id: z.string(),
  sandbox: z.string(),
  channel: z.number(),
  spec: z.string().transform((text) => ExecSpec.parse(JSON.parse(text))),
  state: z.enum(["running", "exited", "lost"]),
  started_at: z.number(),
  ended_at: z.number().nullable(),
  exit: z
    .string()
    .transform((text) => ExecExit.parse(JSON.parse(text)))
    .nullable(),
});

export const execColumns = Object.keys(Row.shape);

/** @throws ZodError, SyntaxError when the row is not one that {@link execToRow} made */
export function execFromRow(row: Record<string, SQLOutputValue>): JournaledExec {
  const { started_at, ended_at, exit, ...same } = Row.parse(row);
  return { ...same, startedAt: started_at, endedAt: ended_at ?? undefined, exit: exit ?? undefined };
}

/** In the order of {@link execColumns}. */
export function execToRow(exec: JournaledExec): SQLInputValue[] {
  return [
    exec.id,
    exec.sandbox,
    exec.channel,
    JSON.stringify(exec.spec),
    exec.state,
    exec.startedAt,
    exec.endedAt ?? null,
    exec.exit === undefined ? null : JSON.stringify(exec.exit),
  ];
}
