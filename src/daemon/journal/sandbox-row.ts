import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { z } from "zod";
import type { Json } from "../../backends/backend.ts";
import { PolicyInForce } from "../../protocol/policy-in-force.ts";
import { Problem } from "../../protocol/problem.ts";
import { ComposedLayer, EndReason, Engine, SandboxSpec, SandboxState } from "../../protocol/sandbox.ts";
import type { SandboxRecord } from "../lifecycle/sandbox-record.ts";

const absent = <T extends z.ZodType>(schema: T) =>
  schema.nullable().transform((value) => value ?? undefined) as z.ZodType<z.output<T> | undefined>;
const json = <T extends z.ZodType>(schema: T) =>
  z.string().transform((text) => schema.parse(JSON.parse(text)));
const anyJson = z.string().transform((text): Json => JSON.parse(text) as Json);

const Row = z.object({
  id: z.string(),
  owner: z.string(),
  spec: json(SandboxSpec),
  state: SandboxState,
  end_reason: absent(EndReason),
  exit_code: absent(z.number()),
  problem: absent(json(Problem)),
  engine: absent(Engine),
  image_digest: absent(z.string()),
  layers: absent(json(z.array(ComposedLayer))),
  address: absent(z.string()),
  created_at: z.number(),
  started_at: absent(z.number()),
  ended_at: absent(z.number()),
  last_active_at: z.number(),
  idle_deadline: absent(z.number()),
  deadline_version: z.number(),
  lifetime_deadline: absent(z.number()),
  kept_until: absent(z.number()),
  revision: z.number(),
  backend_record: absent(anyJson),
  provisioner_record: absent(anyJson),
  network_policy: json(PolicyInForce),
});

export const sandboxColumns = Object.keys(Row.shape);

/** @throws ZodError, SyntaxError when the row is not one that {@link sandboxToRow} made */
export function sandboxFromRow(row: Record<string, SQLOutputValue>): SandboxRecord {
  const parsed = Row.parse(row);
  return {
    id: parsed.id,
    owner: parsed.owner,
    spec: parsed.spec,
    state: parsed.state,
    endReason: parsed.end_reason,
    exitCode: parsed.exit_code,
    problem: parsed.problem,
    engine: parsed.engine,
    imageDigest: parsed.image_digest,
    layers: parsed.layers,
    address: parsed.address,
    createdAt: parsed.created_at,
    startedAt: parsed.started_at,
    endedAt: parsed.ended_at,
    lastActiveAt: parsed.last_active_at,
    idleDeadline: parsed.idle_deadline,
    deadlineVersion: parsed.deadline_version,
    lifetimeDeadline: parsed.lifetime_deadline,
    keptUntil: parsed.kept_until,
    revision: parsed.revision,
    backendRecord: parsed.backend_record,
    provisionerRecord: parsed.provisioner_record,
    networkPolicy: parsed.network_policy,
  };
}

/** In the order of {@link sandboxColumns}. */
export function sandboxToRow(record: SandboxRecord): SQLInputValue[] {
  const text = (value: unknown): string | null => (value === undefined ? null : JSON.stringify(value));
  return [
    record.id,
    record.owner,
    JSON.stringify(record.spec),
    record.state,
    record.endReason ?? null,
    record.exitCode ?? null,
    text(record.problem),
    record.engine ?? null,
    record.imageDigest ?? null,
    text(record.layers),
    record.address ?? null,
    record.createdAt,
    record.startedAt ?? null,
    record.endedAt ?? null,
    record.lastActiveAt,
    record.idleDeadline ?? null,
    record.deadlineVersion,
    record.lifetimeDeadline ?? null,
    record.keptUntil ?? null,
    record.revision,
    text(record.backendRecord),
    text(record.provisionerRecord),
    JSON.stringify(record.networkPolicy),
  ];
}
