import { existsSync, readFileSync } from "node:fs";
import { z } from "zod";

const Package = z.object({ version: z.string() });

/** Of the package this module belongs to, which runs either from src/ or from dist/src/. */
export function packageVersion(): string {
  const fromSource = new URL("../../package.json", import.meta.url);
  const fromBuild = new URL("../../../package.json", import.meta.url);
  const path = existsSync(fromSource) ? fromSource : fromBuild;
  return Package.parse(JSON.parse(readFileSync(path, "utf8"))).version;
}
