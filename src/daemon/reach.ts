import type { SandboxEntry } from "./lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "./lifecycle/sandboxes.ts";

/**
 * The sandbox of a reference once it runs: one that is being taken up after a restart, or is starting, is waited for.
 * @throws DSecError `not_found`, `ambiguous_reference`, `sandbox_not_running`
 */
export async function reach(sandboxes: Sandboxes, ref: string): Promise<SandboxEntry> {
  const entry = sandboxes.find(ref);
  if (entry.adoption !== undefined) await entry.adoption;
  if (entry.record.state !== "running") await entry.start?.done.catch(() => undefined);
  entry.requireRunning();
  return entry;
}
