import { DSecError, type ErrorCode } from "../../protocol/errors.ts";
import type { SandboxSpec } from "../../protocol/sandbox.ts";

/** What admission knows of the node. Bytes. */
export interface NodeLoad {
  /** Live sandboxes, this one not counted. */
  readonly sandboxes: number;
  readonly askedMemoryBytes: number;
  readonly memoryBytes: number;
  readonly memoryAvailableBytes: number;
  readonly diskBytes: number;
  readonly diskAvailableBytes: number;
  /** PSI some avg10 of memory, percent; undefined where the kernel has no PSI. */
  readonly memoryPressure: number | undefined;
  readonly cordoned: boolean;
}

export interface AdmissionPolicy {
  readonly maxSandboxes: number;
  /** How many times the machine's memory may be asked for. */
  readonly memoryOvercommit: number;
  /** Bytes that must really be available. */
  readonly memoryFloorBytes: number;
  readonly diskFloorBytes: number;
  /** Percent. */
  readonly maxMemoryPressure: number;
}

const mib = 1_048_576;

/** Why a sandbox is not let in; undefined when it is. @param random in [0, 1), spreads the retries of a burst */
export function refusal(
  spec: Pick<SandboxSpec, "memoryMb">,
  load: NodeLoad,
  policy: AdmissionPolicy,
  random: () => number,
): DSecError | undefined {
  const refuse = (
    code: ErrorCode,
    baseMs: number,
    message: string,
    details: Record<string, unknown>,
  ): DSecError =>
    new DSecError(code, message, { details, retryAfterMs: Math.round(baseMs * (0.5 + random())) });

  if (load.cordoned)
    return refuse("draining", 10_000, "the node is cordoned and takes no new sandboxes", { cordoned: true });
  if (load.sandboxes >= policy.maxSandboxes)
    return refuse("admission_count", 2000, `the node holds ${load.sandboxes} sandboxes, its limit`, {
      sandboxes: load.sandboxes,
      maxSandboxes: policy.maxSandboxes,
    });
  const askedBytes = load.askedMemoryBytes + spec.memoryMb * mib;
  const limitBytes = load.memoryBytes * policy.memoryOvercommit;
  if (askedBytes > limitBytes)
    return refuse(
      "admission_memory",
      2000,
      `with this sandbox ${inMib(askedBytes)} MiB of memory would be asked for; the limit is ${inMib(limitBytes)} MiB`,
      { askedBytes, limitBytes, memoryOvercommit: policy.memoryOvercommit },
    );
  if (load.memoryAvailableBytes < policy.memoryFloorBytes)
    return refuse(
      "admission_memory",
      2000,
      `${inMib(load.memoryAvailableBytes)} MiB of memory are available; ${inMib(policy.memoryFloorBytes)} MiB must stay free`,
      { availableBytes: load.memoryAvailableBytes, floorBytes: policy.memoryFloorBytes },
    );
  if (load.diskAvailableBytes < policy.diskFloorBytes)
    return refuse(
      "admission_disk",
      5000,
      `${inMib(load.diskAvailableBytes)} MiB of disk are available; ${inMib(policy.diskFloorBytes)} MiB must stay free`,
      { availableBytes: load.diskAvailableBytes, floorBytes: policy.diskFloorBytes },
    );
  if (load.memoryPressure !== undefined && load.memoryPressure > policy.maxMemoryPressure)
    return refuse(
      "admission_pressure",
      5000,
      `memory pressure is ${load.memoryPressure}%; the limit is ${policy.maxMemoryPressure}%`,
      { memoryPressure: load.memoryPressure, maxMemoryPressure: policy.maxMemoryPressure },
    );
  return undefined;
}

function inMib(bytes: number): number {
  return Math.round(bytes / mib);
}
