import { type AdmissionPolicy, refusal } from "./admission.ts";
import type { MachineSampler } from "./machine.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";

export interface AdmittingParts {
  readonly sandboxes: Sandboxes;
  readonly machine: MachineSampler;
  readonly policy: AdmissionPolicy;
  readonly cordoned: () => boolean;
  readonly random: () => number;
}

const mib = 1_048_576;

/** @throws DSecError why this node does not take the sandbox */
export async function admit(parts: AdmittingParts, entry: SandboxEntry): Promise<void> {
  const { sandboxes, machine, policy, cordoned, random } = parts;
  const sample = await machine.sample();
  const ahead = aheadOf(sandboxes, entry);
  const refused = refusal(
    entry.record.spec,
    {
      ...ahead,
      memoryBytes: sample.memoryBytes,
      memoryAvailableBytes: sample.memoryAvailableBytes,
      diskBytes: sample.diskBytes,
      diskAvailableBytes: sample.diskAvailableBytes,
      memoryPressure: sample.pressure?.memory,
      cordoned: cordoned(),
    },
    policy,
    random,
  );
  if (refused !== undefined) throw refused;
}

/** The live sandboxes that were let in, or asked earlier: those that asked later must not keep this one out. */
function aheadOf(sandboxes: Sandboxes, self: SandboxEntry): { sandboxes: number; askedMemoryBytes: number } {
  const ahead = { sandboxes: 0, askedMemoryBytes: 0 };
  let isLater = false;
  for (const entry of sandboxes.values()) {
    if (entry === self) isLater = true;
    else if (!entry.isEnded && !(isLater && entry.record.state === "pending")) {
      ahead.sandboxes += 1;
      ahead.askedMemoryBytes += entry.record.spec.memoryMb * mib;
    }
  }
  return ahead;
}
