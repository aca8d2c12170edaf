import type { ExecRecord } from "../protocol/exec.ts";
import type { NodeList } from "../protocol/node.ts";
import type { ReclaimResult, Sandbox, SandboxEvent, SandboxState, WatchEvent } from "../protocol/sandbox.ts";
import { endedStates } from "../protocol/states.ts";
import { describePolicy } from "./describe-policy.ts";
import { formatDuration } from "./duration.ts";
import type { Column, View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import type { Tone } from "./theme.ts";

const mebibyte = 1_048_576;

const stateTones: Readonly<Record<SandboxState, Tone>> = {
  pending: "active",
  starting: "active",
  running: "good",
  paused: "warning",
  stopping: "warning",
  stopped: "muted",
  failed: "bad",
  lost: "bad",
};

const sandboxColumns: readonly Column<Sandbox>[] = [
  { title: "ID", width: 22, value: ({ id }) => id },
  { title: "NAME", width: 12, value: ({ name }) => name ?? "" },
  { title: "IMAGE", width: 16, value: ({ image }) => image },
  { title: "STATE", width: 24, value: describeState, tone: ({ state }) => stateTones[state] },
  { title: "AGE", width: 7, value: ({ createdAt }, now) => formatDuration(now - createdAt) },
  { title: "MEMORY", width: 7, value: ({ spec }) => formatSize(spec.memoryMb * mebibyte) },
  { title: "CPUS", width: 5, value: ({ spec }) => String(spec.cpus) },
  { title: "EXECS", width: 5, value: ({ activeExecs }) => String(activeExecs) },
  { title: "ENDS IN", width: 8, value: describeDeadline },
  { title: "BACKEND", wide: true, value: describeBackend },
  { title: "CLASS", wide: true, value: ({ spec }) => spec.class },
  { title: "DISK", wide: true, value: ({ spec }) => formatSize(spec.diskMb * mebibyte) },
  { title: "NODE", wide: true, value: ({ node }) => node },
  { title: "OWNER", wide: true, value: ({ owner }) => owner },
  { title: "ADDRESS", wide: true, value: ({ address }) => address ?? "" },
  { title: "POLICY", wide: true, value: ({ networkPolicy }) => describePolicy(networkPolicy) },
  { title: "LABELS", wide: true, value: ({ labels }) => formatLabels(labels) },
];

export const sandboxView: View<Sandbox> = { columns: sandboxColumns, name: ({ id }) => id };

export const endView: View<Sandbox> = {
  columns: [
    { title: "ID", value: ({ id }) => id },
    { title: "NAME", value: ({ name }) => name ?? "" },
    { title: "STATE", value: ({ state }) => state, tone: ({ state }) => stateTones[state] },
    { title: "REASON", value: ({ endReason }) => endReason ?? "" },
    { title: "EXIT CODE", value: ({ exitCode }) => (exitCode === undefined ? "" : String(exitCode)) },
    {
      title: "RAN FOR",
      value: ({ startedAt, endedAt }) =>
        startedAt === undefined || endedAt === undefined ? "" : formatDuration(endedAt - startedAt),
    },
    { title: "MESSAGE", wide: true, value: ({ problem }) => problem?.title ?? "" },
  ],
  name: ({ id }) => id,
};

/** A watch's row: what happened, then the sandbox as `ls` shows it. */
export type SandboxChange = Extract<WatchEvent, { type: "snapshot" | "changed" | "removed" }>;

const changeTones: Readonly<Record<SandboxChange["type"], Tone>> = {
  snapshot: "muted",
  changed: "active",
  removed: "warning",
};

export const changeView: View<SandboxChange> = {
  columns: [
    { title: "EVENT", width: 8, value: ({ type }) => type, tone: ({ type }) => changeTones[type] },
    ...sandboxColumns.map((column): Column<SandboxChange> => ({
      ...column,
      value: (change, now) => {
        if (change.type !== "removed") return column.value(change.sandbox, now);
        return column.title === "ID" ? change.id : "";
      },
      tone: (change) => (change.type === "removed" ? undefined : column.tone?.(change.sandbox)),
    })),
  ],
  name: (change) => (change.type === "removed" ? change.id : change.sandbox.id),
};

export type NodeEntry = NodeList["items"][number];

export const nodeView: View<NodeEntry> = {
  columns: [
    { title: "NAME", value: ({ name }) => name },
    { title: "HEALTH", value: describeHealth, tone: ({ health }) => (health === "healthy" ? "good" : "bad") },
    { title: "RUNNING", value: ({ status }) => String(status?.counts["running"] ?? 0) },
    { title: "MAX", value: ({ status }) => (status === undefined ? "" : String(status.maxSandboxes)) },
    {
      title: "CPUS",
      value: ({ status }) => (status === undefined ? "" : asked(status.asked.cpus, status.cpus)),
    },
    {
      title: "MEMORY ASKED",
      value: ({ status }) =>
        status === undefined
          ? ""
          : `${formatSize(status.asked.memoryBytes)}/${formatSize(status.memoryBytes)}`,
    },
    {
      title: "MEMORY FREE",
      value: ({ status }) => (status === undefined ? "" : formatSize(status.memoryAvailableBytes)),
    },
    {
      title: "DISK FREE",
      value: ({ status }) => (status === undefined ? "" : formatSize(status.diskAvailableBytes)),
    },
    {
      title: "BACKENDS",
      value: ({ status }) =>
        (status?.backends ?? [])
          .filter(({ works }) => works)
          .map(describeBackend)
          .join(","),
    },
    { title: "VERSION", wide: true, value: ({ status }) => status?.version ?? "" },
    { title: "ADDRESS", wide: true, value: ({ address }) => address },
    {
      title: "LAST SEEN",
      wide: true,
      value: ({ lastSeen }, now) =>
        lastSeen === undefined ? "never" : `${formatDuration(now - lastSeen)} ago`,
    },
    { title: "MESSAGE", wide: true, value: ({ message }) => message ?? "" },
  ],
  name: ({ name }) => name,
};

export type Reclaimed = ReclaimResult["items"][number];

export const reclaimView: View<Reclaimed> = {
  columns: [
    { title: "ID", value: ({ id }) => id },
    { title: "NAME", value: ({ name }) => name ?? "" },
    { title: "IDLE", value: ({ idleSeconds }) => formatDuration(idleSeconds * 1000) },
    { title: "MEMORY", value: ({ memoryBytes }) => formatSize(memoryBytes) },
    { title: "DISK", value: ({ diskBytes }) => formatSize(diskBytes) },
    { title: "ENDED", value: ({ ended }) => (ended ? "yes" : "no") },
  ],
  name: ({ id }) => id,
};

export const eventView: View<SandboxEvent> = {
  columns: [
    { title: "TIME", value: ({ time }) => new Date(time).toISOString() },
    { title: "SANDBOX", value: ({ sandbox }) => sandbox },
    { title: "EVENT", value: ({ type }) => type },
    { title: "MESSAGE", value: ({ message }) => message },
  ],
  name: ({ sandbox }) => sandbox,
};

export const execView: View<ExecRecord> = {
  columns: [
    { title: "EXEC", value: ({ id }) => id },
    { title: "STATE", value: ({ state }) => state },
    { title: "EXIT CODE", value: ({ exit }) => (exit === undefined ? "" : String(exit.exitCode)) },
    { title: "CAUSE", value: ({ exit }) => exit?.cause ?? "" },
    { title: "STARTED", value: ({ startedAt }, now) => `${formatDuration(now - startedAt)} ago` },
    { title: "RECORDED", value: ({ recorded }) => (recorded ? "yes" : "no") },
    { title: "COMMAND", value: ({ argv }) => argv.join(" ") },
  ],
  name: ({ id }) => id,
};

function describeState({ state, endReason, exitCode }: Sandbox): string {
  if (endReason === undefined) return state;
  return `${state} (${endReason}${exitCode === undefined ? "" : ` ${exitCode}`})`;
}

/** The nearer of both deadlines; none while something runs and no lifetime is set, or when it has ended. */
function describeDeadline({ state, idleDeadline, lifetimeDeadline }: Sandbox, now: number): string {
  if (endedStates.includes(state)) return "";
  const deadlines = [idleDeadline, lifetimeDeadline].filter((deadline) => deadline !== undefined);
  return deadlines.length === 0 ? "never" : formatDuration(Math.min(...deadlines) - now);
}

export function describeBackend({
  backend,
  engine,
}: {
  backend: string;
  engine?: string | undefined;
}): string {
  return engine === undefined ? backend : `${backend}/${engine}`;
}

function describeHealth({ health, status }: NodeEntry): string {
  if (health !== "healthy" || status === undefined) return health;
  if (status.cordoned) return "cordoned";
  return status.recovered ? health : "recovering";
}

function asked(amount: number, available: number): string {
  return `${Math.round(amount * 100) / 100}/${available}`;
}

function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
