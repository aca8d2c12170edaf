import { readFile } from "node:fs/promises";
import { findPackageJSON } from "node:module";
import { DSecError } from "../protocol/errors.ts";

/** The version of this package. */
export async function packageVersion(): Promise<string> {
  const path = findPackageJSON("..", import.meta.url);
  const content: unknown = path === undefined ? {} : JSON.parse(await readFile(path, "utf8"));
  if (typeof content === "object" && content !== null && "version" in content) return String(content.version);
  throw new DSecError("internal", "this package has no version");
}
