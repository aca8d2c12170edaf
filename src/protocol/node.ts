import { z } from "zod";
import { NodeName } from "./names.ts";
import { BackendKind, Engine } from "./sandbox.ts";

/** Whether one backend works on a node; if not, why, and the command that mends it. */
export const BackendReport = z.object({
  backend: BackendKind,
  engine: Engine.optional(),
  works: z.boolean(),
  version: z.string().optional(),
  /** What does not hold, each with the command that mends it where one is known. */
  findings: z.array(
    z.object({
      level: z.enum(["error", "warning", "info"]),
      message: z.string(),
      fix: z.string().optional(),
    }),
  ),
});
export type BackendReport = z.infer<typeof BackendReport>;

/** What a registry's name in a policy stands for on a node. */
export const RegistryView = z.object({
  name: z.string(),
  domains: z.array(z.string()),
  /** Of one with a cut-off: the node's mirror, and nothing else. */
  cidrs: z.array(z.string()),
  ports: z.array(z.int()),
  /** Who says so: dsec itself, the node's package manager, the operator's file. */
  source: z.enum(["built-in", "node", "file"]),
  upstream: z.string().optional(),
  /** Milliseconds since the epoch; releases published later are not served. */
  cutoff: z.number().optional(),
});
export type RegistryView = z.infer<typeof RegistryView>;

/** What placement and operators see of a node. Bytes and cores. */
export const NodeStatus = z.object({
  name: NodeName,
  version: z.string(),
  startedAt: z.number(),
  /** False until recovery after a restart is done; sandboxes answer before that. */
  recovered: z.boolean(),
  cordoned: z.boolean(),
  backends: z.array(BackendReport),
  cpus: z.number(),
  memoryBytes: z.number(),
  memoryAvailableBytes: z.number(),
  diskBytes: z.number(),
  diskAvailableBytes: z.number(),
  /** PSI some avg10, percent; absent where the kernel has no PSI. */
  pressure: z.object({ cpu: z.number(), memory: z.number(), io: z.number() }).optional(),
  counts: z.record(z.string(), z.int()),
  /** What the live sandboxes asked for, and what they use. */
  asked: z.object({ cpus: z.number(), memoryBytes: z.number(), diskBytes: z.number() }),
  used: z.object({ memoryBytes: z.number(), diskBytes: z.number() }),
  maxSandboxes: z.int(),
  registries: z.array(RegistryView).optional(),
});
export type NodeStatus = z.infer<typeof NodeStatus>;

export const NodeRegistration = z.strictObject({
  name: NodeName,
  /** `unix:/path` or `https://host:port`. */
  address: z.string().max(512),
  /** Bearer token the coordinator presents to the daemon. */
  token: z.string().min(16).max(256),
});
export type NodeRegistration = z.infer<typeof NodeRegistration>;

export const NodeList = z.object({
  items: z.array(
    z.object({
      name: NodeName,
      address: z.string(),
      health: z.enum(["healthy", "unreachable"]),
      /** Milliseconds since the epoch of the last answer. */
      lastSeen: z.number().optional(),
      status: NodeStatus.optional(),
      message: z.string().optional(),
    }),
  ),
});
export type NodeList = z.infer<typeof NodeList>;

export const ServerVersion = z.object({
  version: z.string(),
  role: z.enum(["coordinator", "daemon"]),
  api: z.literal("v1"),
});
export type ServerVersion = z.infer<typeof ServerVersion>;
