import type { Backend } from "../../backends/backend.ts";
import type { BackendReport, NodeStatus, RegistryView } from "../../protocol/node.ts";
import { auditFinding } from "../audit/audit-finding.ts";
import type { Clock } from "../clock.ts";
import type { MachineSampler } from "../admission/machine.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import type { UsedTotalsSampler } from "./usage.ts";

export interface NodeStatusParts {
  readonly name: string;
  readonly version: string;
  readonly clock: Clock;
  readonly startedAt: number;
  readonly backends: readonly Backend[];
  /** Of backends that cannot even be tried here. */
  readonly unusable: readonly BackendReport[];
  /** What keeps this node from preparing roots and networks. */
  readonly findings: () => BackendReport["findings"];
  /** Whether processes of sandboxes are audited. */
  readonly audited: boolean;
  /** What registries' names stand for. */
  readonly registries: () => RegistryView[];
  readonly sandboxes: Sandboxes;
  readonly machine: MachineSampler;
  readonly used: UsedTotalsSampler;
  readonly maxSandboxes: number;
  readonly recovered: () => boolean;
  readonly cordoned: () => boolean;
}

const mib = 1_048_576;
/** Reports older than this are renewed behind an answer. */
const reportAgeMs = 60_000;
const probeTimeoutMs = 10_000;

/** What placement and operators see of this node. */
export class NodeStatusReader {
  readonly #parts: NodeStatusParts;
  #reports: readonly BackendReport[] = [];
  #probedAt = Number.NEGATIVE_INFINITY;
  #probing: Promise<void> | undefined;

  constructor(parts: NodeStatusParts) {
    this.#parts = parts;
  }

  /** Of every backend; probes them where none was yet. */
  async reports(): Promise<readonly BackendReport[]> {
    if (this.#reports.length === 0) await this.probe();
    return this.#reports;
  }

  async read(): Promise<NodeStatus> {
    if (this.#reports.length === 0) await this.probe();
    else if (this.#parts.clock.now() - this.#probedAt > reportAgeMs) void this.probe();
    return this.#status();
  }

  /** Probes every backend afresh. */
  async probe(): Promise<void> {
    this.#probing ??= this.#probe().finally(() => {
      this.#probing = undefined;
    });
    await this.#probing;
  }

  async #probe(): Promise<void> {
    const { backends, unusable, clock } = this.#parts;
    const signal = AbortSignal.timeout(probeTimeoutMs);
    const probed = await Promise.all(
      backends.map(async (backend) => this.#complete(backend, await backend.probe(signal))),
    );
    this.#reports = [...probed, ...unusable];
    this.#probedAt = clock.now();
  }

  /** A backend that needs prepared roots works only where they can be had. */
  #complete(backend: Backend, report: BackendReport): BackendReport {
    if (!backend.capabilities.realProcesses) return report;
    const findings = backend.capabilities.root === "prepared" ? this.#parts.findings() : [];
    const works = report.works && findings.every(({ level }) => level !== "error");
    const audit = auditFinding(this.#parts.audited);
    return {
      ...report,
      works,
      findings: [...report.findings, ...findings, ...(report.works ? [audit] : [])],
    };
  }

  async #status(): Promise<NodeStatus> {
    const { name, version, startedAt, sandboxes, machine, used, maxSandboxes, recovered, cordoned } =
      this.#parts;
    const sample = await machine.sample();
    return {
      name,
      version,
      startedAt,
      recovered: recovered(),
      cordoned: cordoned(),
      backends: [...this.#reports],
      cpus: sample.cpus,
      memoryBytes: sample.memoryBytes,
      memoryAvailableBytes: sample.memoryAvailableBytes,
      diskBytes: sample.diskBytes,
      diskAvailableBytes: sample.diskAvailableBytes,
      ...(sample.pressure === undefined ? {} : { pressure: sample.pressure }),
      counts: countsOf(sandboxes),
      asked: askedOf(sandboxes),
      used: { ...used.totals() },
      maxSandboxes,
      registries: this.#parts.registries(),
    };
  }
}

/** Sandboxes by state. */
function countsOf(sandboxes: Sandboxes): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { record } of sandboxes.values()) counts[record.state] = (counts[record.state] ?? 0) + 1;
  return counts;
}

/** What the live sandboxes asked for. */
export function askedOf(sandboxes: Sandboxes): NodeStatus["asked"] {
  const asked = { cpus: 0, memoryBytes: 0, diskBytes: 0 };
  for (const entry of sandboxes.values()) {
    if (entry.isEnded) continue;
    asked.cpus += entry.record.spec.cpus;
    asked.memoryBytes += entry.record.spec.memoryMb * mib;
    asked.diskBytes += entry.record.spec.diskMb * mib;
  }
  return asked;
}
