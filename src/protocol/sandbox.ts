import { z } from "zod";
import { Labels, NodeName, SandboxId, SandboxName } from "./names.ts";
import { NetworkCounters } from "./network-decision.ts";
import { NetworkRules, PolicyChoice } from "./network-policy.ts";
import { GivenPolicy, KnownPolicy, PolicyInForce } from "./policy-in-force.ts";
import { Problem } from "./problem.ts";

export const BackendKind = z.enum(["container", "fncall", "microvm", "vm", "simulated"]);
export type BackendKind = z.infer<typeof BackendKind>;

export const Engine = z.enum(["runc", "docker"]);
export type Engine = z.infer<typeof Engine>;

/** When an image is looked for in its registry, as docker's. */
export const PullPolicy = z.enum(["missing", "always", "never"]);
export type PullPolicy = z.infer<typeof PullPolicy>;

export const SandboxState = z.enum([
  "pending",
  "starting",
  "running",
  "paused",
  "stopping",
  "stopped",
  "failed",
  "lost",
]);
export type SandboxState = z.infer<typeof SandboxState>;

/** Why a sandbox ended. Task outcomes: stopped, exited, oom, disk_full, idle_ttl, max_lifetime. The others are the platform's. */
export const EndReason = z.enum([
  "stopped",
  "idle_ttl",
  "max_lifetime",
  "exited",
  "oom",
  "disk_full",
  "start_failed",
  "evicted",
  "node_lost",
  "agent_lost",
]);
export type EndReason = z.infer<typeof EndReason>;

export const ResourceClass = z.enum(["latency-sensitive", "best-effort"]);
export type ResourceClass = z.infer<typeof ResourceClass>;

/** A layer's place in a root: the base at the bottom, then the workspace, then the toolkits. */
export const LayerKind = z.enum(["base", "workspace", "toolkit"]);
export type LayerKind = z.infer<typeof LayerKind>;

const LayerName = z.string().min(1).max(512);

/** What a reference stood for when the sandbox was made. */
export const ComposedLayer = z.object({
  reference: z.string(),
  kind: LayerKind,
  /** Content digests, from the lowest upwards: an image may be several layers. */
  digests: z.array(z.string()),
});
export type ComposedLayer = z.infer<typeof ComposedLayer>;

const envName = z.string().regex(/^[^=\0]{1,256}$/, "must not be empty or contain '='");
export const Env = z
  .record(
    envName,
    z
      .string()
      .max(65_536)
      .refine((value) => !value.includes("\0"), "must not contain NUL"),
  )
  .refine((env) => Object.keys(env).length <= 512, "at most 512 variables");

export const UserSpec = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$/,
    "must be a user name or uid, optionally with :group",
  );
export const AbsolutePath = z
  .string()
  .max(4096)
  .regex(/^\/[^\0]*$/, "must be an absolute path");

/** MiB; 16 MiB is what the smallest sandbox needs. */
const MemoryMb = z.int().min(16).max(4_194_304);
/** Cores asked for; a share of the machine, not a ceiling. */
const Cpus = z.number().min(0.01).max(1024);
/** Seconds; 0 means never. */
const Seconds = z.int().min(0).max(31_536_000);

/** How the simulated backend should behave; `<n>` are milliseconds. */
export const Simulation = z.strictObject({
  startMs: z.int().min(0).max(3_600_000).default(0),
  startFailure: z.string().max(256).optional(),
  memoryMb: z.number().min(0).default(1),
  agentLostAfterMs: z.int().min(0).optional(),
});
export type Simulation = z.infer<typeof Simulation>;

/** A sandbox to be made. Every default of the product stands here and nowhere else. */
export const SandboxSpec = z.strictObject({
  backend: BackendKind.default("container"),
  /** Of the container backend; without it, the engine that has the image. */
  engine: Engine.optional(),
  /** A published layer, else an imported image, else one of the Docker daemon, else one of its registry. */
  image: LayerName,
  pull: PullPolicy.default("missing"),
  /** Starts the image's own entrypoint, or its command, as a recorded service beside whatever else runs in the sandbox. */
  entrypoint: z.boolean().default(false),
  /** A published layer of kind workspace: lies over the image. Paths that both have are merged, the upper one wins; it may delete what is below it. */
  workspace: LayerName.optional(),
  /** Published layers of kind toolkit: each lies over what is before it. */
  toolkits: z.array(LayerName).max(64).default([]),
  name: SandboxName.optional(),
  labels: Labels.default({}),
  env: Env.default({}),
  hostname: SandboxName.optional(),
  /** Whom commands run as unless they say otherwise. */
  initUser: UserSpec.optional(),
  /** Where commands start unless they say otherwise; made where it is missing, as an image's own is. */
  workdir: AbsolutePath.optional(),
  memoryMb: MemoryMb.default(1024),
  cpus: Cpus.default(1),
  /** Hard ceiling in cores; none unless asked for. */
  cpuLimit: Cpus.optional(),
  pidsLimit: z.int().min(8).max(1_000_000).default(1024),
  /** MiB the sandbox may write. */
  diskMb: z.int().min(1).max(16_777_216).default(4096),
  class: ResourceClass.default("latency-sensitive"),
  /** Idle seconds after which the sandbox ends: no exec running, none started, no touch. */
  ttlRunningStop: Seconds.default(1800),
  /** Seconds from creation after which it ends whatever it does. */
  maxLifetime: Seconds.default(86_400),
  /** Registries by name, and other rules by their text: true allows, false denies. Added to `networkPolicy`. */
  networkRules: NetworkRules.default({}),
  /** A named policy, `open`, `none`, or rules; without one everything is denied that `networkRules` do not allow. */
  networkPolicy: PolicyChoice.optional(),
  simulation: Simulation.optional(),
});
export type SandboxSpec = z.infer<typeof SandboxSpec>;
export type SandboxSpecInput = z.input<typeof SandboxSpec>;

/** What the coordinator sends a daemon: PUT /v1/sandboxes/{id}. The id is the fencing token: the same id is the same sandbox. */
export const Placement = z.strictObject({
  id: SandboxId,
  owner: z.string().min(1).max(128),
  spec: SandboxSpec,
  /** What the spec's `networkPolicy` names: policies with names are the coordinator's to look up. */
  networkPolicy: GivenPolicy.optional(),
  /** Instead of it: `unknown_policy` where the node does not have it, and it must be sent. */
  knownPolicy: KnownPolicy.optional(),
});
export type Placement = z.infer<typeof Placement>;

/** Limits that can change while the sandbox runs. */
export const SandboxUpdate = z
  .strictObject({
    memoryMb: MemoryMb,
    cpus: Cpus,
    cpuLimit: Cpus.nullable(),
    pidsLimit: z.int().min(8).max(1_000_000),
    labels: Labels,
  })
  .partial()
  .refine((update) => Object.keys(update).length > 0, "must change something");
export type SandboxUpdate = z.infer<typeof SandboxUpdate>;

/** Renews the idle deadline; with `ttlRunningStop` (seconds) also changes its length. */
export const TouchRequest = z.strictObject({ ttlRunningStop: Seconds.optional() });
export type TouchRequest = z.infer<typeof TouchRequest>;

export const StopRequest = z.strictObject({ reason: z.enum(["stopped", "evicted"]).default("stopped") });
export type StopRequest = z.infer<typeof StopRequest>;

/** What a sandbox uses now. Bytes; CPU in seconds since its start. */
export const Usage = z.object({
  memoryBytes: z.number(),
  cpuSeconds: z.number(),
  pids: z.number(),
  diskBytes: z.number(),
  oomKills: z.number(),
});
export type Usage = z.infer<typeof Usage>;

/** A sandbox as every list, watch and answer shows it. Times are milliseconds since the epoch. */
export const Sandbox = z.object({
  id: z.string(),
  node: NodeName,
  owner: z.string(),
  backend: BackendKind,
  engine: Engine.optional(),
  image: z.string(),
  /** What the image's tag stood for when the sandbox was made. */
  imageDigest: z.string().optional(),
  /** What its root is composed of, from the base upwards: exact, resolved once. Absent where the backend has images of its own, or none. */
  layers: z.array(ComposedLayer).optional(),
  name: z.string().optional(),
  labels: z.record(z.string(), z.string()),
  state: SandboxState,
  endReason: EndReason.optional(),
  /** Of the command that the sandbox ended with. */
  exitCode: z.int().optional(),
  /** Why it failed or was lost. */
  problem: Problem.optional(),
  /** What it is waiting for while it is pending, for people: `fetching docker.io/library/debian:12, 45%`. */
  progress: z.string().optional(),
  spec: SandboxSpec,
  createdAt: z.number(),
  startedAt: z.number().optional(),
  endedAt: z.number().optional(),
  /** When it ends for idleness; absent while something runs in it or it has no idle limit. */
  idleDeadline: z.number().optional(),
  /** Counts changes of the idle deadline; a renewal that returned version N is honoured by every later expiry check. */
  deadlineVersion: z.int(),
  lifetimeDeadline: z.number().optional(),
  /** Until when an ended sandbox's record and logs are kept. */
  keptUntil: z.number().optional(),
  activeExecs: z.int(),
  /** Address on the node's private network, for host-to-sandbox connections. */
  address: z.string().optional(),
  networkPolicy: PolicyInForce,
  /** Only in answers for one sandbox, and in lists with `usage=true`. */
  usage: Usage.optional(),
  /** Only in answers for one sandbox, where its network is enforced by rules. */
  networkCounters: NetworkCounters.optional(),
  /** Rises with every change; what a watch resumes from. */
  revision: z.int(),
});
export type Sandbox = z.infer<typeof Sandbox>;

/** Query of lists, watches and reclaim. All given conditions must hold; several states are alternatives, several labels (`k`, `k=v`, `k!=v`) must all hold. */
export const SandboxFilter = z.strictObject({
  state: z.array(SandboxState).optional(),
  label: z.array(z.string().max(400)).optional(),
  owner: z.string().max(128).optional(),
  name: z.string().max(80).optional(),
  /** Ids beginning with this. */
  prefix: z.string().max(80).optional(),
  backend: BackendKind.optional(),
  /** Ended sandboxes too; without it lists show live ones only, unless `state` names an ended state. */
  all: z.boolean().optional(),
});
export type SandboxFilter = z.infer<typeof SandboxFilter>;

export const SandboxList = z.object({
  items: z.array(Sandbox),
  /** Give as `cursor` for the next page; absent on the last. */
  nextCursor: z.string().optional(),
  /** Nodes that did not answer: the list lacks their sandboxes. */
  unreachable: z.array(z.string()).optional(),
});
export type SandboxList = z.infer<typeof SandboxList>;

/** Ends idle sandboxes now. */
export const ReclaimRequest = z.strictObject({
  filter: SandboxFilter.default({}),
  /** Seconds a sandbox must have been idle. */
  idleFor: Seconds.default(0),
  dryRun: z.boolean().default(false),
});
export type ReclaimRequest = z.infer<typeof ReclaimRequest>;

export const ReclaimResult = z.object({
  items: z.array(
    z.object({
      id: z.string(),
      name: z.string().optional(),
      idleSeconds: z.number(),
      memoryBytes: z.number(),
      diskBytes: z.number(),
      ended: z.boolean(),
    }),
  ),
  memoryBytes: z.number(),
  diskBytes: z.number(),
  /** Nodes that did not answer: nothing was ended there. */
  unreachable: z.array(z.string()).optional(),
});
export type ReclaimResult = z.infer<typeof ReclaimResult>;

/**
 * One line of a watch (NDJSON): a `snapshot` entry per sandbox, then `synced`, then changes as they happen.
 * Resume with `cursor`; a cursor that is too old is answered by a fresh snapshot. `ping` keeps the connection known alive.
 */
export const WatchEvent = z.discriminatedUnion("type", [
  z.object({ type: z.literal("snapshot"), sandbox: Sandbox }),
  z.object({ type: z.literal("synced"), cursor: z.string() }),
  z.object({ type: z.literal("changed"), cursor: z.string(), sandbox: Sandbox }),
  z.object({ type: z.literal("removed"), cursor: z.string(), id: z.string() }),
  z.object({ type: z.literal("unreachable"), node: z.string() }),
  z.object({ type: z.literal("ping") }),
]);
export type WatchEvent = z.infer<typeof WatchEvent>;

/** Something that happened to a sandbox, for people: `dsec inspect`, `dsec logs --events`. */
export const SandboxEvent = z.object({
  time: z.number(),
  sandbox: z.string(),
  type: z.string(),
  message: z.string(),
});
export type SandboxEvent = z.infer<typeof SandboxEvent>;
