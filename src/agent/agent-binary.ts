import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/**
 * The built agent: dist/agent/dsec-agent of the package this module belongs to, which runs either from src/ or from
 * dist/src/.
 */
export function agentBinaryPath(): string {
  const fromSource = fileURLToPath(new URL("../../dist/agent/dsec-agent", import.meta.url));
  const fromBuild = fileURLToPath(new URL("../../agent/dsec-agent", import.meta.url));
  return existsSync(fromBuild) ? fromBuild : fromSource;
}
