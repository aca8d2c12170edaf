import { agentBinaryPath } from "../agent/agent-binary.ts";
import type { BackendReport } from "../protocol/node.ts";
import { createBackends } from "./registry.ts";

/** Whether each backend works on this machine, without a daemon: for `dsec doctor` before the first `dsec up`. */
export async function probeBackends(
  options: { readonly instance: string; readonly runDir: string },
  signal: AbortSignal,
): Promise<BackendReport[]> {
  const { backends, broken } = await createBackends({ ...options, agentPath: agentBinaryPath() });
  try {
    return [...(await Promise.all(backends.map(async (backend) => backend.probe(signal)))), ...broken];
  } finally {
    await Promise.all(backends.map(async (backend) => backend.close()));
  }
}
