/** The library: `import { DSecClient } from "dsec"`. */
export { DSecClient } from "./client.ts";
export type {
  ContainerArgs,
  CreateOptions,
  ListOptions,
  ReclaimArgs,
  SandboxArgs,
  SandboxPage,
} from "./client.ts";
export { Sandbox } from "./sandbox.ts";
export type { CallOptions, LogOptions } from "./sandbox.ts";
export type { OpenOptions } from "./open-connection.ts";
export { ExecProcess } from "./exec-process.ts";
export type { AttachOptions } from "./exec-process.ts";
export type {
  CollectOptions,
  ExecResult,
  OutputCallback,
  OutputOptions,
  ShellOptions,
} from "./exec-collect.ts";
export type { Command, ExecOptions, SpawnOptions } from "./exec-options.ts";
export type { FetchInit } from "./fetch.ts";
export type { ForwardOptions, PortForward } from "./forward.ts";
export { Policies } from "./policies.ts";
export type { PolicyLike, PolicyRules } from "./policies.ts";
export type { AuditEvent } from "../protocol/audit-event.ts";
export type { NamedPolicy, NamedPolicySummary } from "../protocol/named-policy.ts";
export type {
  NetworkCounters,
  NetworkDecision,
  NetworkProbeResult,
  NetworkVerdict,
} from "../protocol/network-decision.ts";
export type { NetworkPolicy, NetworkPolicyInput, NetworkRule } from "../protocol/network-policy.ts";
export type { PolicyInForce, SandboxPolicy } from "../protocol/policy-in-force.ts";
export type { PolicyAudience, PolicyChange, PolicyPushResult } from "../protocol/policy-push.ts";
export type { PolicyTexts } from "../protocol/policy-texts.ts";
export { SandboxFiles } from "./files.ts";
export type { FileCallOptions, FileEntry, ReadOptions, RemotePath, WriteOptions } from "./files.ts";
export type { TransferOptions, TransferProgress } from "./file-transfer.ts";
export type { ArchiveResult } from "../protocol/file.ts";
export { DSecError, errorTable, isErrorCode } from "../protocol/errors.ts";
export type { ErrorCode } from "../protocol/errors.ts";
export type { ExecExit, ExecRecord, ExecSpecInput, LogLine } from "../protocol/exec.ts";
export type { PortToken } from "../protocol/port.ts";
export type { LayerHeat, NodeLayer, NodeLayerList } from "../protocol/layer.ts";
export type { BackendReport, NodeList, NodeStatus, ServerVersion } from "../protocol/node.ts";
export type { SessionInfo, SessionOutcome } from "../protocol/session.ts";
export type {
  BackendKind,
  EndReason,
  ReclaimResult,
  Sandbox as SandboxInfo,
  SandboxEvent,
  SandboxFilter,
  SandboxSpecInput,
  SandboxState,
  SandboxUpdate,
  Usage,
  WatchEvent,
} from "../protocol/sandbox.ts";
