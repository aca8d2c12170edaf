import type { Limits } from "../../backends/backend.ts";
import type { SandboxSpec, SandboxUpdate } from "../../protocol/sandbox.ts";

const mib = 1_048_576;

export function limitsOf(spec: SandboxSpec): Limits {
  return {
    memoryBytes: spec.memoryMb * mib,
    cpus: spec.cpus,
    cpuLimit: spec.cpuLimit ?? null,
    pids: spec.pidsLimit,
    diskBytes: spec.diskMb * mib,
    class: spec.class,
  };
}

/** The limits that an update changes. */
export function changedLimits(update: SandboxUpdate): Partial<Limits> {
  return {
    ...(update.memoryMb === undefined ? {} : { memoryBytes: update.memoryMb * mib }),
    ...(update.cpus === undefined ? {} : { cpus: update.cpus }),
    ...(update.cpuLimit === undefined ? {} : { cpuLimit: update.cpuLimit }),
    ...(update.pidsLimit === undefined ? {} : { pids: update.pidsLimit }),
  };
}

/** The spec after an update. */
export function updatedSpec(spec: SandboxSpec, update: SandboxUpdate): SandboxSpec {
  const { cpuLimit: oldCeiling, ...rest } = spec;
  const ceiling = update.cpuLimit === undefined ? oldCeiling : (update.cpuLimit ?? undefined);
  return {
    ...rest,
    ...(update.memoryMb === undefined ? {} : { memoryMb: update.memoryMb }),
    ...(update.cpus === undefined ? {} : { cpus: update.cpus }),
    ...(update.pidsLimit === undefined ? {} : { pidsLimit: update.pidsLimit }),
    ...(update.labels === undefined ? {} : { labels: update.labels }),
    ...(ceiling === undefined ? {} : { cpuLimit: ceiling }),
  };
}
