import { z } from "zod";
import { ExecList, LogLine } from "../../protocol/exec.ts";
import { LayerQuery, LayerRelease, NodeLayerList } from "../../protocol/layer.ts";
import { NodeName, SandboxId, SandboxRef } from "../../protocol/names.ts";
import { NodeList, NodeRegistration, NodeStatus, ServerVersion } from "../../protocol/node.ts";
import { Port, PortToken, PortTokenRequest } from "../../protocol/port.ts";
import type { RouteName } from "../../protocol/routes.ts";
import {
  Placement,
  ReclaimRequest,
  ReclaimResult,
  Sandbox,
  SandboxEvent,
  SandboxFilter,
  SandboxList,
  SandboxSpec,
  SandboxUpdate,
  StopRequest,
  TouchRequest,
  WatchEvent,
} from "../../protocol/sandbox.ts";
import { SessionList, SessionName } from "../../protocol/session.ts";
import { fileContracts } from "./file-contracts.ts";
import { networkContracts } from "./network-contracts.ts";

/** What a route takes and gives; validation, handler types and OpenAPI are all made from it. */
export interface Contract {
  readonly summary: string;
  readonly params?: z.ZodObject;
  /** Absent: any query parameter is an error. */
  readonly query?: z.ZodObject;
  readonly body?: z.ZodType;
  /** The media type of a body that is content of any length, instead of {@link body}. */
  readonly upload?: string;
  readonly status: 101 | 200 | 201 | 202 | 204;
  /** `ndjson`: `schema` is that of a line. */
  readonly answer: "json" | "ndjson" | "text" | "bytes" | "empty" | "upgrade";
  /** Of an answer in bytes. */
  readonly contentType?: string;
  readonly schema?: z.ZodType;
}

const ref = z.strictObject({ ref: SandboxRef });
/** A watch's cursor has some 30 characters per node; a request's head may have 16 KiB. */
const cursor = z.string().min(1).max(12_000);

/** Query of `GET /v1/sandboxes`. */
export const ListQuery = SandboxFilter.extend({
  limit: z.int().min(1).max(10_000).default(1000),
  cursor: cursor.optional(),
  usage: z.boolean().default(false),
});
export type ListQuery = z.infer<typeof ListQuery>;

/** Query of `GET /v1/watch`. */
export const WatchQuery = SandboxFilter.extend({ cursor: cursor.optional() });
export type WatchQuery = z.infer<typeof WatchQuery>;

/** Query of `GET /v1/sandboxes/:ref/logs`. */
const LogsQuery = z.strictObject({
  exec: z.string().max(128).optional(),
  follow: z.boolean().default(false),
  /** Lines from the end. */
  tail: z.int().min(0).max(10_000_000).optional(),
  /** Milliseconds since the epoch. */
  since: z.number().min(0).optional(),
});

const define = <T extends Record<RouteName, Contract>>(table: T): T => table;

export const contracts = define({
  version: {
    summary: "Version and role of this server; needs no token",
    status: 200,
    answer: "json",
    schema: ServerVersion,
  },
  metrics: { summary: "Prometheus metrics", status: 200, answer: "text" },
  createSandbox: {
    summary: "Place and start a sandbox; answers when it runs",
    body: SandboxSpec,
    status: 201,
    answer: "json",
    schema: Sandbox,
  },
  placeSandbox: {
    summary: "Start a placed sandbox; the same id again answers the same sandbox",
    params: z.strictObject({ id: SandboxId }),
    body: Placement,
    status: 201,
    answer: "json",
    schema: Sandbox,
  },
  listSandboxes: {
    summary: "List sandboxes",
    query: ListQuery,
    status: 200,
    answer: "json",
    schema: SandboxList,
  },
  getSandbox: {
    summary: "One sandbox with its usage",
    params: ref,
    status: 200,
    answer: "json",
    schema: Sandbox,
  },
  updateSandbox: {
    summary: "Change limits or labels of a running sandbox",
    params: ref,
    body: SandboxUpdate,
    status: 200,
    answer: "json",
    schema: Sandbox,
  },
  removeSandbox: {
    summary: "End a sandbox and forget its record",
    params: ref,
    status: 204,
    answer: "empty",
  },
  stopSandbox: {
    summary: "End a sandbox; idempotent",
    params: ref,
    body: StopRequest,
    status: 200,
    answer: "json",
    schema: Sandbox,
  },
  touchSandbox: {
    summary: "Renew the idle deadline",
    params: ref,
    body: TouchRequest,
    status: 200,
    answer: "json",
    schema: Sandbox,
  },
  waitSandbox: {
    summary: "Wait for the end of a sandbox",
    params: ref,
    query: z.strictObject({ timeoutMs: z.int().min(0).max(60_000).default(30_000) }),
    status: 200,
    answer: "json",
    schema: Sandbox,
  },
  listEvents: {
    summary: "What happened to a sandbox",
    params: ref,
    status: 200,
    answer: "json",
    schema: z.object({ items: z.array(SandboxEvent) }),
  },
  listExecs: {
    summary: "Commands of a sandbox",
    params: ref,
    status: 200,
    answer: "json",
    schema: ExecList,
  },
  listSessions: {
    summary: "Sessions of a sandbox",
    params: ref,
    status: 200,
    answer: "json",
    schema: SessionList,
  },
  endSession: {
    summary: "End a session with every process it started",
    params: ref.extend({ name: SessionName }),
    status: 204,
    answer: "empty",
  },
  logs: {
    summary: "Recorded output of a command",
    params: ref,
    query: LogsQuery,
    status: 200,
    answer: "ndjson",
    schema: LogLine,
  },
  exec: { summary: "Run a command over a WebSocket", params: ref, status: 101, answer: "upgrade" },
  attach: {
    summary: "Follow a recorded command over a WebSocket, and write to it",
    params: ref.extend({ exec: z.string().min(1).max(128) }),
    status: 101,
    answer: "upgrade",
  },
  port: {
    summary: "Tunnel to a TCP port of a sandbox",
    params: ref.extend({ port: Port }),
    status: 101,
    answer: "upgrade",
  },
  http: {
    summary: "HTTP to a port of a sandbox: every method, everything below this path, upgrades too",
    params: ref.extend({ port: Port }),
    status: 200,
    answer: "upgrade",
  },
  createPortToken: {
    summary: "A credential for one port of one sandbox",
    params: ref,
    body: PortTokenRequest,
    status: 201,
    answer: "json",
    schema: PortToken,
  },
  ...fileContracts,
  ...networkContracts,
  reclaim: {
    summary: "End idle sandboxes now",
    body: ReclaimRequest,
    status: 200,
    answer: "json",
    schema: ReclaimResult,
  },
  watch: {
    summary: "Snapshot of the sandboxes, then changes",
    query: WatchQuery,
    status: 200,
    answer: "ndjson",
    schema: WatchEvent,
  },
  listLayers: {
    summary: "Layers that nodes use or used, who uses them, and how much of them was read",
    query: LayerQuery,
    status: 200,
    answer: "json",
    schema: NodeLayerList,
  },
  releaseLayers: {
    summary: "Unmount layers that no sandbox uses; answers with those that are in use",
    body: LayerRelease,
    status: 200,
    answer: "json",
    schema: NodeLayerList,
  },
  nodeStatus: { summary: "Status of this node", status: 200, answer: "json", schema: NodeStatus },
  nodeDoctor: { summary: "Status after fresh probes", status: 200, answer: "json", schema: NodeStatus },
  listNodes: { summary: "Nodes of the fleet", status: 200, answer: "json", schema: NodeList },
  registerNode: {
    summary: "Register a node, or renew its registration",
    params: z.strictObject({ name: NodeName }),
    body: NodeRegistration,
    status: 204,
    answer: "empty",
  },
  doctor: { summary: "Nodes of the fleet after fresh probes", status: 200, answer: "json", schema: NodeList },
  shutdown: {
    summary: "End the server",
    query: z.strictObject({ sandboxes: z.enum(["keep", "stop"]).default("keep") }),
    status: 202,
    answer: "empty",
  },
});

type Contracts = typeof contracts;
type Parsed<C, K extends string> = C extends Record<K, infer S extends z.ZodType> ? z.output<S> : undefined;

export type Params<N extends RouteName> = Parsed<Contracts[N], "params">;
export type Query<N extends RouteName> = Parsed<Contracts[N], "query">;
export type Body<N extends RouteName> = Parsed<Contracts[N], "body">;
type Answer<C> = C extends { answer: "json"; schema: infer S extends z.ZodType }
  ? z.output<S>
  : C extends { answer: "ndjson"; schema: infer S extends z.ZodType }
    ? AsyncIterable<z.output<S>>
    : C extends { answer: "text" }
      ? { readonly contentType: string; readonly text: string }
      : void;
/** What the handler of a route resolves to. */
export type Result<N extends RouteName> = Answer<Contracts[N]>;
