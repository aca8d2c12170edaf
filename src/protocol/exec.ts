import { z } from "zod";
import { Problem } from "./problem.ts";
import { AbsolutePath, Env, UserSpec } from "./sandbox.ts";
import { SessionOutcome, ShellSpec } from "./session.ts";

const TerminalSize = z.strictObject({ rows: z.int().min(1).max(65_535), cols: z.int().min(1).max(65_535) });

/** One process to start in a sandbox. `argv` is passed on exactly as given: no shell, no joining. */
export const ExecSpec = z.strictObject({
  argv: z
    .array(
      z
        .string()
        .max(131_072)
        .refine((value) => !value.includes("\0"), "must not contain NUL"),
    )
    .min(1)
    .max(4096),
  env: Env.default({}),
  cwd: AbsolutePath.optional(),
  user: UserSpec.optional(),
  /** Null stdin unless true. */
  stdin: z.boolean().default(false),
  tty: TerminalSize.optional(),
  /** Milliseconds; 0 means none. */
  timeoutMs: z.int().min(0).max(2_147_483_647).default(0),
  /** Started, recorded on the node, and left alone: the answer is its record, not its output. */
  detach: z.boolean().default(false),
  /** What happens to an attached exec when its client goes away. `keep` implies `record`. */
  onDisconnect: z.enum(["kill", "keep"]).default("kill"),
  /** Keep the output on the node (capped, head and tail), readable also after the sandbox's end. */
  record: z.boolean().default(false),
  /** The sandbox ends with this process: `dsec run IMAGE -- CMD`. */
  endsSandbox: z.boolean().default(false),
});
export type ExecSpec = z.infer<typeof ExecSpec>;
export type ExecSpecInput = z.input<typeof ExecSpec>;

/** How a process ended. `oom`: killed by the sandbox's memory limit. */
export const ExecExit = z.object({
  type: z.literal("exit"),
  execId: z.string(),
  /** 0–255; 128 + signal; 124 when it was timed out. */
  exitCode: z.int(),
  cause: z.enum(["exited", "signaled", "timeout", "oom", "killed"]),
  signal: z.string().optional(),
  timedOut: z.boolean(),
  /** The sandbox's disk limit was reached when it ended. */
  diskFull: z.boolean(),
  stdoutBytes: z.number(),
  stderrBytes: z.number(),
  durationMs: z.number(),
  /** Of a session's command. */
  session: SessionOutcome.optional(),
});
export type ExecExit = z.infer<typeof ExecExit>;

/** The one terminal status frame of an exec: sent after both streams have drained. */
export const ExecStatus = z.discriminatedUnion("type", [
  ExecExit,
  /** Detached: it was started. */
  z.object({ type: z.literal("detached"), execId: z.string() }),
  z.object({ type: z.literal("error"), problem: Problem }),
]);
export type ExecStatus = z.infer<typeof ExecStatus>;

export const ExecRecord = z.object({
  id: z.string(),
  sandbox: z.string(),
  argv: z.array(z.string()),
  state: z.enum(["running", "exited", "lost"]),
  recorded: z.boolean(),
  endsSandbox: z.boolean(),
  stdin: z.boolean(),
  tty: z.boolean(),
  startedAt: z.number(),
  endedAt: z.number().optional(),
  exit: ExecExit.optional(),
});
export type ExecRecord = z.infer<typeof ExecRecord>;

export const ExecList = z.object({ items: z.array(ExecRecord) });
export type ExecList = z.infer<typeof ExecList>;

/** Bytes of each stream since the exec's start. */
const StreamOffsets = z.strictObject({ stdout: z.int().min(0), stderr: z.int().min(0) });
export type StreamOffsets = z.infer<typeof StreamOffsets>;

/** What an attachment wants of a recorded exec. */
export const AttachRequest = z.strictObject({
  type: z.literal("attach"),
  /** Where its output begins: now, at the start of what is recorded, or after what the client has already. */
  from: z.union([z.enum(["now", "start"]), StreamOffsets]).default("now"),
  /** To be the one client whose stdin the process reads. Leaving it does not end the process's stdin. */
  stdin: z.boolean().default(false),
});
export type AttachRequest = z.infer<typeof AttachRequest>;
export type AttachRequestInput = z.input<typeof AttachRequest>;

const Signal = z.strictObject({ type: z.literal("signal"), signal: z.string().max(16) });

/** The client's first frame is `start` or `shell`; it may send at most `stdinWindow` bytes of stdin beyond what `credit` granted. */
export const ClientControl = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("start"), spec: ExecSpec }),
  z.strictObject({ type: z.literal("shell"), spec: ShellSpec }),
  Signal,
]);
export type ClientControl = z.infer<typeof ClientControl>;

/** The same for an attachment: its first frame is `attach`. */
export const AttachControl = z.discriminatedUnion("type", [AttachRequest, Signal]);
export type AttachControl = z.infer<typeof AttachControl>;

export const ServerControl = z.discriminatedUnion("type", [
  z.object({ type: z.literal("started"), execId: z.string(), pid: z.int() }),
  z.object({ type: z.literal("credit"), bytes: z.int() }),
  /** The answer to `attach`; the output that follows begins at `from`. */
  z.object({ type: z.literal("attached"), execId: z.string(), pid: z.int(), from: StreamOffsets }),
  /** Bytes of a stream that are not there: dropped by the recording's cap, or the reader was slower than it. */
  z.object({ type: z.literal("gap"), stream: z.enum(["stdout", "stderr"]), bytes: z.int() }),
]);
export type ServerControl = z.infer<typeof ServerControl>;

export const Resize = TerminalSize;

/** One line of recorded output (NDJSON). `data` is base64. `gap` marks bytes that the cap dropped between head and tail. */
export const LogLine = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("output"),
    stream: z.enum(["stdout", "stderr"]),
    time: z.number(),
    data: z.string(),
  }),
  z.object({ type: z.literal("gap"), bytes: z.number() }),
  z.object({ type: z.literal("end"), exit: ExecExit.optional() }),
]);
export type LogLine = z.infer<typeof LogLine>;
