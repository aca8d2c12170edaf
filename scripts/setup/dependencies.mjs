import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runCommand } from "./command.mjs";
import { projectNode, projectRoot } from "./project.mjs";
import { step } from "./steps.mjs";

/** Installs the npm packages of the lock file, unless exactly those are installed. */
export async function installDependencies() {
  if (installedAsLocked()) return;
  const args = ["ci", "--include=dev", "--no-audit", "--no-fund"];
  await step("install npm packages", `npm ${args.join(" ")}`, () => runCommand("npm", args));
}

/**
 * npm records what it installed, at the end of a successful installation, in node_modules. Packages that are
 * optional on this platform may be absent there.
 */
function installedAsLocked() {
  const record = join(projectRoot, "node_modules", ".package-lock.json");
  if (!existsSync(record) || !existsSync(projectNode)) return false;
  const installed = lockedPackages(record);
  const wanted = lockedPackages(join(projectRoot, "package-lock.json"));
  wanted.delete("");
  for (const [path, entry] of wanted) {
    const found = installed.get(path);
    if (found === undefined ? !entry.optional : found.integrity !== entry.integrity) return false;
  }
  return [...installed.keys()].every((path) => wanted.has(path));
}

/**
 * @param {string} path
 * @returns {Map<string, { integrity?: string, optional?: boolean }>}
 */
function lockedPackages(path) {
  return new Map(Object.entries(JSON.parse(readFileSync(path, "utf8")).packages));
}
