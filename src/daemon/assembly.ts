import { join } from "node:path";
import type { Logger } from "pino";
import type { Backend } from "../backends/backend.ts";
import type { ExecExit } from "../protocol/exec.ts";
import type { BackendReport, RegistryView } from "../protocol/node.ts";
import type { Audit } from "./audit/audit.ts";
import { Activity } from "./deadlines/activity.ts";
import { admit } from "./admission/admitting.ts";
import { ChangeFeed } from "./views/change-feed.ts";
import type { Clock } from "./clock.ts";
import type { DeadlineKind } from "./deadlines/deadline-heap.ts";
import { Deadlines } from "./deadlines/deadlines.ts";
import { Ending } from "./lifecycle/ending.ts";
import { ExecGate } from "./exec/exec-gate.ts";
import type { Env } from "./exec/exec-defaults.ts";
import { Execs } from "./exec/execs.ts";
import { endReasonOf } from "./exec/exit.ts";
import type { LiveExec } from "./exec/live-exec.ts";
import { Recordings } from "./exec/recordings.ts";
import type { Journal } from "./journal/journal.ts";
import { Files } from "./files/files.ts";
import { NodeImports } from "./layers/images/node-imports.ts";
import { isOwnStore, isRemoteStore } from "./layers/node-layers.ts";
import { LeakSweep } from "./lifecycle/leak-sweep.ts";
import type { LifecycleEffect } from "./lifecycle/lifecycle.ts";
import { diskOf, MachineSampler } from "./admission/machine.ts";
import { Metrics } from "./metrics.ts";
import { PolicyBook } from "./network/policy/policy-book.ts";
import { PolicyChanges } from "./network/policy/policy-changes.ts";
import { PolicyEnforcement } from "./network/policy/policy-enforcement.ts";
import type { ProtectedRange } from "./network/policy/protected-ranges.ts";
import type { RegistryTable } from "./network/policy/registry-table.ts";
import {
  packageManagerEnvironment,
  type RegistryHome,
} from "./network/registries/package-manager-environment.ts";
import { SandboxNetworks } from "./network/policy/sandbox-networks.ts";
import type { SandboxPolicies } from "./network/sandbox-policies.ts";
import type { SandboxTrust } from "./network/authorities/sandbox-trust.ts";
import { NodeStatusReader } from "./views/node-status.ts";
import type { DaemonOptions } from "./options.ts";
import { Ports } from "./ports/ports.ts";
import type { Provisioner } from "./provisioner.ts";
import { Retention } from "./lifecycle/retention.ts";
import type { SandboxEntry } from "./lifecycle/sandbox-entry.ts";
import { Sandboxes } from "./lifecycle/sandboxes.ts";
import { Semaphore } from "./semaphore.ts";
import { NodeSessions } from "./sessions/node-sessions.ts";
import { Starting, stoppedError } from "./lifecycle/starting.ts";
import { UsedTotalsSampler } from "./views/usage.ts";
import { packageVersion } from "./version.ts";

export interface AssemblyParts {
  readonly options: DaemonOptions;
  readonly clock: Clock;
  readonly random: () => number;
  /** Differs from run to run. */
  readonly boot: string;
  readonly newId: () => string;
  readonly log: Logger;
  readonly journal: Journal;
  readonly backends: readonly Backend[];
  readonly unusable: readonly BackendReport[];
  /** Undefined where the node has no backend that needs it. */
  readonly provisioner: Provisioner | undefined;
  /** What keeps sandboxes from being prepared, or from what they are to have. */
  readonly findings: () => BackendReport["findings"];
  readonly registries: () => RegistryView[];
  /** What registries' names stand for here, as of now. */
  readonly registryTable: () => RegistryTable;
  /** Registries that are not where package managers look by themselves. */
  readonly registryHomes: () => readonly RegistryHome[];
  /** What no rule but one for an address block within it opens. */
  readonly protectedRanges: readonly ProtectedRange[];
  /** Undefined where no sandbox of this node has a way out of its network. */
  readonly datapath: SandboxPolicies | undefined;
  /** What of the node's goes into sandboxes' files; undefined where nothing does. */
  readonly trust: SandboxTrust | undefined;
  /** Undefined where what processes do is of no interest. */
  readonly audit: Audit | undefined;
  /** Sizes of what is held ready, by kind. */
  readonly pools: () => Readonly<Record<string, number>>;
}

export type Daemon = ReturnType<typeof assemble>;

const mib = 1_048_576;
const machineAgeMs = 250;
/** Milliseconds until a deadline is tried again that failed, e.g. on a full disk. */
const deadlineRetryMs = 5000;
const usedIntervalMs = 15_000;

/** Makes the parts of a daemon and ties them together. Nothing runs yet. */
export function assemble(parts: AssemblyParts) {
  const { options, clock, random, log, journal, backends, unusable, provisioner, audit } = parts;
  const version = packageVersion();
  const state = { cordoned: false, recovered: false };
  const cordoned = (): boolean => state.cordoned;
  const logsDir = join(options.dataDir, "daemon", "logs");
  const feed = new ChangeFeed(parts.boot);
  const metrics = new Metrics();
  const machine = new MachineSampler({
    disk: async () =>
      provisioner?.disk().catch(async () => diskOf(options.dataDir)) ?? diskOf(options.dataDir),
    now: () => clock.now(),
    maxAgeMs: machineAgeMs,
  });

  const effects: Readonly<Record<LifecycleEffect, (entry: SandboxEntry) => void>> = {
    arm_lifetime: ({ id, record }) => {
      if (record.lifetimeDeadline !== undefined) deadlines.arm("lifetime", id, record.lifetimeDeadline);
    },
    arm_idle: (entry) => activity.begin(entry),
    abort_start: (entry) => entry.start?.abort(stoppedError(entry)),
    tear_down: (entry) => {
      ports.end(entry);
      void ending.tearDown(entry);
    },
    keep_record: (entry) => {
      ports.end(entry);
      metrics.ended(entry.record.endReason ?? "unknown");
      retention.keep(entry);
    },
  };
  const due: Readonly<Record<DeadlineKind, (entry: SandboxEntry, now: number) => number | undefined>> = {
    idle: (entry, now) => activity.due(entry, now),
    lifetime: (entry) => {
      ending.begin(
        entry,
        "max_lifetime",
        `its maximum lifetime of ${entry.record.spec.maxLifetime} s is over`,
      );
      return undefined;
    },
    purge: (entry, now) => retention.due(entry, now),
  };

  const sandboxes: Sandboxes = new Sandboxes({
    node: options.name,
    clock,
    log,
    journal,
    keepMs: options.keepEnded * 1000,
    feed,
    effect: (effect, entry) => effects[effect](entry),
  });
  const pinned = new Set<string>();
  const policyBook: PolicyBook = new PolicyBook({
    journal,
    context: () => ({ registries: parts.registryTable(), protectedRanges: parts.protectedRanges }),
    used: () =>
      new Set([...pinned, ...[...sandboxes.values()].map(({ record }) => record.networkPolicy.digest)]),
  });
  const enforcement = new PolicyEnforcement({ log, sandboxes, book: policyBook, datapath: parts.datapath });
  const policyChanges = new PolicyChanges({ clock, sandboxes, book: policyBook, enforcement, pinned });
  const networks = new SandboxNetworks({ book: policyBook, enforcement });
  const deadlines: Deadlines = new Deadlines(clock, (kind, id, now) => {
    const entry = sandboxes.get(id);
    if (entry === undefined) return undefined;
    try {
      return due[kind](entry, now);
    } catch (error) {
      log.error({ err: error, sandbox: id, deadline: kind }, "a deadline could not be carried out");
      return now + deadlineRetryMs;
    }
  });
  const activity: Activity = new Activity({
    clock,
    journal,
    sandboxes,
    deadlines,
    expired: (entry) => ending.begin(entry, "idle_ttl", `idle for ${entry.record.spec.ttlRunningStop} s`),
  });
  const recordings = new Recordings({
    dir: logsDir,
    headBytes: options.logHeadBytes,
    tailBytes: options.logTailBytes,
    now: () => clock.now(),
    failed: (error, sandbox, exec) => log.error({ err: error, sandbox, exec }, "recording had to stop"),
  });
  const nodeEnvironment = (entry: SandboxEntry): Env => {
    if (entry.backend?.capabilities.realProcesses !== true) return {};
    const policy = policyBook.source(entry.record.networkPolicy.digest);
    return { ...parts.trust?.environment, ...packageManagerEnvironment(parts.registryHomes(), policy) };
  };
  const sessions = new NodeSessions({ clock, log, journal, nodeEnvironment });
  const execs: Execs = new Execs({
    clock,
    log,
    journal,
    metrics,
    activity,
    recordings,
    sessions,
    newId: parts.newId,
    nodeEnvironment,
    stopGraceMs: options.stopGraceMs,
    endsWith: (entry, exec, exit) => endWith(ending, entry, exec, exit),
  });
  const ports: Ports = new Ports({ clock, sandboxes, activity });
  const retention: Retention = new Retention({
    log,
    sandboxes,
    deadlines,
    logsDir,
    maxEnded: options.maxEnded,
    audit,
  });
  const sweep: LeakSweep = new LeakSweep({ clock, log, sandboxes, backends, provisioner });
  const ending: Ending = new Ending({
    clock,
    log,
    sandboxes,
    execs,
    retention,
    sweep,
    enforcement,
    audit,
  });
  const policy = {
    maxSandboxes: options.maxSandboxes,
    memoryOvercommit: options.memoryOvercommit,
    memoryFloorBytes: options.memoryFloorMb * mib,
    diskFloorBytes: options.diskFloorMb * mib,
    maxMemoryPressure: options.maxMemoryPressure,
  };
  const imports =
    !options.backends.includes("runc") || isRemoteStore(options.layerStore)
      ? undefined
      : new NodeImports({
          clock,
          layerStore: options.layerStore,
          create: isOwnStore(options.layerStore, options.dataDir),
          directory: join(options.dataDir, "imports"),
          ...(options.dockerSocket !== undefined && { dockerSocket: options.dockerSocket }),
        });
  const starting = new Starting({
    node: options.name,
    clock,
    log,
    metrics,
    sandboxes,
    ending,
    execs,
    sweep,
    policyBook,
    policyChanges,
    enforcement,
    backends,
    provisioner,
    imports,
    trust: parts.trust,
    audit,
    admit: async (entry) => admit({ sandboxes, machine, policy, cordoned, random }, entry),
    slots: new Semaphore(options.concurrentStarts),
    startTimeoutMs: options.startTimeoutMs,
  });
  const gate = new ExecGate({
    clock,
    sandboxes,
    execs,
    recordings,
    clientTimeoutMs: options.clientTimeoutMs,
  });
  const { transferStallMs } = options;
  const files = new Files({ clock, sandboxes, activity, transferStallMs });
  const used = new UsedTotalsSampler({ sandboxes, clock, log, intervalMs: usedIntervalMs });
  const status = new NodeStatusReader({
    name: options.name,
    version,
    clock,
    startedAt: clock.now(),
    backends,
    unusable,
    findings: parts.findings,
    audited: audit !== undefined,
    registries: parts.registries,
    sandboxes,
    machine,
    used,
    maxSandboxes: options.maxSandboxes,
    recovered: () => state.recovered,
    cordoned,
  });
  metrics.observe(
    sandboxes,
    () => feed.watchers,
    () => ports.size,
  );
  metrics.observePools(parts.pools);
  if (parts.datapath !== undefined) metrics.observeNetwork(parts.datapath);
  if (audit !== undefined) metrics.observeAudit(audit);

  return {
    name: options.name,
    version,
    clock,
    random,
    log,
    journal,
    feed,
    metrics,
    backends,
    provisioner,
    trust: parts.trust,
    audit,
    sandboxes,
    source: sandboxes,
    deadlines,
    activity,
    recordings,
    execs,
    sessions,
    retention,
    sweep,
    ending,
    starting,
    gate,
    files,
    ports,
    policyBook,
    policyChanges,
    enforcement,
    networks,
    status,
    /** Nothing new is taken from now on. */
    cordon: (): void => {
      state.cordoned = true;
    },
    recovered: (): void => {
      state.recovered = true;
    },
    dispose: async (): Promise<void> => {
      deadlines.dispose();
      await imports?.close();
      await sweep.close();
    },
  };
}

/** The sandbox ends as the command did that it was to end with. */
function endWith(ending: Ending, entry: SandboxEntry, exec: LiveExec, exit: ExecExit | undefined): void {
  const command = exec.spec.argv[0] ?? "";
  if (exit === undefined) ending.begin(entry, "agent_lost", `the end of its command ${command} is not known`);
  else if (exec.killedBy === undefined)
    ending.begin(
      entry,
      endReasonOf(exit),
      `its command ${command} ended with ${exit.exitCode}`,
      exit.exitCode,
    );
  else ending.begin(entry, "stopped", `the client of its command ${command} went away`);
}
