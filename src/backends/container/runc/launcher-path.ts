import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The built launcher of the package this module belongs to, which runs either from src/ or from dist/src/. */
export function launcherPath(): string {
  const fromSource = fileURLToPath(new URL("../../../../dist/launcher/dsec-launcher", import.meta.url));
  const fromBuild = fileURLToPath(new URL("../../../../launcher/dsec-launcher", import.meta.url));
  return existsSync(fromBuild) ? fromBuild : fromSource;
}
