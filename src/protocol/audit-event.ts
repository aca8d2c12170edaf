import { z } from "zod";
import { NetworkProtocol } from "./network-policy.ts";

const origin = {
  /** Rises by one with each line of the sandbox; a gap is what was lost to the limit of what is kept. */
  sequence: z.int(),
  /** Milliseconds since the epoch. */
  time: z.number(),
  sandbox: z.string(),
};

const process = {
  ...origin,
  /** As the sandbox numbers it, and as its node does. */
  pid: z.int(),
  nodePid: z.int(),
  /** As the sandbox numbers it; 0 for what the agent's own parent, or the node, has started. */
  parentPid: z.int(),
  uid: z.int(),
  /** The kernel's name of the process: 15 bytes at most, and the process may change it. */
  command: z.string(),
};

/**
 * One line of `dsec audit`. Text is untrusted: it is what processes in the sandbox say. Bytes that are no UTF-8 are replaced by
 * U+FFFD.
 */
export const AuditEvent = z.discriminatedUnion("kind", [
  /** A program was executed. */
  z.object({
    ...process,
    kind: z.literal("exec"),
    /** As it was given to execve(2): it may be relative, or a link. */
    path: z.string(),
    /** 1,024 bytes of it at most. */
    argv: z.array(z.string()),
    /** Whether path or argv is longer than what is shown. */
    truncated: z.boolean(),
  }),
  /** A connection was tried, or a datagram socket bound to its peer, by whatever system call. What became of it is not known here. */
  z.object({
    ...process,
    kind: z.literal("connect"),
    protocol: NetworkProtocol.or(z.literal("other")),
    address: z.string(),
    port: z.int(),
  }),
  /** A process ended that was told of by `exec`. */
  z.object({
    ...process,
    kind: z.literal("exit"),
    /** One of the two. */
    exitCode: z.int().optional(),
    signal: z.int().optional(),
  }),
  /** More happened than could be told. */
  z.object({
    ...origin,
    kind: z.literal("lost"),
    /** How many events; absent where the audit was interrupted and nobody has counted. */
    count: z.int().optional(),
  }),
]);
export type AuditEvent = z.infer<typeof AuditEvent>;
