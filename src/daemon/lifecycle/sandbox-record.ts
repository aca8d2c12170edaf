import type { Json } from "../../backends/backend.ts";
import type { PolicyInForce } from "../../protocol/policy-in-force.ts";
import type { Problem } from "../../protocol/problem.ts";
import type {
  ComposedLayer,
  EndReason,
  Engine,
  Placement,
  Sandbox,
  SandboxSpec,
  SandboxState,
} from "../../protocol/sandbox.ts";

/** What the journal holds of a sandbox. Times are milliseconds since the epoch. */
export interface SandboxRecord {
  readonly id: string;
  readonly owner: string;
  /** As asked for, with later updates of limits and labels. */
  spec: SandboxSpec;
  state: SandboxState;
  /** Set when it begins to end. */
  endReason: EndReason | undefined;
  exitCode: number | undefined;
  problem: Problem | undefined;
  /** Of a pending one, in memory only. */
  progress?: string | undefined;
  engine: Engine | undefined;
  imageDigest: string | undefined;
  /** What its root is composed of, where the daemon composes it. */
  layers: readonly ComposedLayer[] | undefined;
  address: string | undefined;
  readonly createdAt: number;
  startedAt: number | undefined;
  endedAt: number | undefined;
  /** The last moment of activity that is over; what `reclaim` counts idleness from. */
  lastActiveAt: number;
  idleDeadline: number | undefined;
  deadlineVersion: number;
  lifetimeDeadline: number | undefined;
  keptUntil: number | undefined;
  revision: number;
  backendRecord: Json | undefined;
  provisionerRecord: Json | undefined;
  networkPolicy: PolicyInForce;
}

/** The record of a sandbox that was just asked for. @param now milliseconds since the epoch */
export function newRecord(
  { id, owner, spec }: Placement,
  networkPolicy: PolicyInForce,
  now: number,
): SandboxRecord {
  return {
    id,
    owner,
    spec: withoutRules(spec),
    state: "pending",
    endReason: undefined,
    exitCode: undefined,
    problem: undefined,
    engine: spec.engine,
    imageDigest: undefined,
    layers: undefined,
    address: undefined,
    createdAt: now,
    startedAt: undefined,
    endedAt: undefined,
    lastActiveAt: now,
    idleDeadline: undefined,
    deadlineVersion: 0,
    lifetimeDeadline: spec.maxLifetime === 0 ? undefined : now + spec.maxLifetime * 1000,
    keptUntil: undefined,
    revision: 0,
    backendRecord: undefined,
    provisionerRecord: undefined,
    networkPolicy,
  };
}

/** A policy of its own is kept once, by its digest, and not with every record that is read and written. */
function withoutRules(spec: SandboxSpec): SandboxSpec {
  const { networkPolicy, ...rest } = spec;
  return typeof networkPolicy === "object" ? rest : spec;
}

const known = <T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };

/** The record as the wire shows it. */
export function toSandbox(record: SandboxRecord, node: string, activeExecs: number): Sandbox {
  return {
    id: record.id,
    node,
    owner: record.owner,
    backend: record.spec.backend,
    image: record.spec.image,
    labels: record.spec.labels,
    state: record.state,
    spec: record.spec,
    createdAt: record.createdAt,
    deadlineVersion: record.deadlineVersion,
    activeExecs,
    networkPolicy: record.networkPolicy,
    revision: record.revision,
    ...known({
      engine: record.engine,
      imageDigest: record.imageDigest,
      layers: record.layers === undefined ? undefined : [...record.layers],
      name: record.spec.name,
      endReason: record.endReason,
      exitCode: record.exitCode,
      problem: record.problem,
      progress: record.progress,
      startedAt: record.startedAt,
      endedAt: record.endedAt,
      idleDeadline: activeExecs > 0 ? undefined : record.idleDeadline,
      lifetimeDeadline: record.lifetimeDeadline,
      keptUntil: record.keptUntil,
      address: record.address,
    }),
  };
}
