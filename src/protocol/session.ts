import { z } from "zod";
import { AbsolutePath, Env, UserSpec } from "./sandbox.ts";

export const SessionName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be 1 to 64 letters, digits, '.', '_' or '-'");

/** One command for a session: a live shell in the sandbox, in which directory, variables, functions and umask persist. */
export const ShellSpec = z.strictObject({
  session: SessionName.default("main"),
  /** Shell text; evaluated in the session's shell itself. */
  command: z
    .string()
    .max(120_000)
    .refine((value) => !value.includes("\0"), "must not contain NUL"),
  /** For this command alone. */
  env: Env.default({}),
  /** For this command alone; without it, the session's own directory. */
  cwd: AbsolutePath.optional(),
  /** Whose shell it is; asked for only when the session begins, else it must agree. */
  user: UserSpec.optional(),
  /** Milliseconds; 0 means none. Kills what the command started, not the session. */
  timeoutMs: z.int().min(0).max(2_147_483_647).default(0),
});
export type ShellSpec = z.infer<typeof ShellSpec>;
export type ShellSpecInput = z.input<typeof ShellSpec>;

/** What became of the session at the end of a command. */
export const SessionOutcome = z.object({
  name: z.string(),
  /**
   * `kept`: the same shell goes on. `restarted`: the command ended the shell (`exit`, `exec`, a kill, a wedge); the next
   * command meets a fresh one.
   */
  shell: z.enum(["kept", "restarted"]),
});
export type SessionOutcome = z.infer<typeof SessionOutcome>;

export const SessionInfo = z.object({
  name: z.string(),
  /** Of the shell inside; absent between a restart and the next command. */
  pid: z.int().optional(),
  user: z.string().optional(),
  busy: z.boolean(),
  /** Commands run in it so far. */
  commands: z.int(),
  /** Shells it has lost. */
  restarts: z.int(),
  startedAt: z.number(),
  lastUsedAt: z.number(),
});
export type SessionInfo = z.infer<typeof SessionInfo>;

export const SessionList = z.object({ items: z.array(SessionInfo) });
export type SessionList = z.infer<typeof SessionList>;
