import { DSecError } from "../../protocol/errors.ts";
import type { SandboxUpdate } from "../../protocol/sandbox.ts";
import { changedLimits, updatedSpec } from "./limits.ts";
import type { SandboxEntry } from "./sandbox-entry.ts";
import type { Sandboxes } from "./sandboxes.ts";

/**
 * Changes limits of a running sandbox, or labels in any state.
 * @throws DSecError `unsupported` for a limit its backend cannot change, `sandbox_not_running`
 */
export async function updateSandbox(
  sandboxes: Sandboxes,
  entry: SandboxEntry,
  update: SandboxUpdate,
): Promise<void> {
  await entry.adoption;
  const limits = changedLimits(update);
  const names = Object.keys(limits) as (keyof typeof limits)[];
  if (names.length > 0) {
    const running = entry.requireRunning();
    const fixed = names.filter((name) => entry.backend?.capabilities.updates.has(name) !== true);
    if (fixed.length > 0)
      throw new DSecError("unsupported", `${fixed.join(", ")} cannot be changed while this sandbox runs`, {
        details: { fixed },
      });
    await running.update(limits);
  }
  sandboxes.change(entry, { spec: updatedSpec(entry.record.spec, update) });
  sandboxes.event(entry, "updated", `changed ${Object.keys(update).join(", ")}`);
}
