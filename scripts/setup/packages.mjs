import { runCommand } from "./command.mjs";
import { findCommand } from "./find-command.mjs";
import { isRoot } from "./project.mjs";
import { say, step } from "./steps.mjs";
import { missingTools } from "./tools.mjs";

/** @typedef {"apt" | "dnf" | "apk"} ManagerName */

/**
 * How to install, per package manager; `update` is absent where installing refreshes the lists itself. Only apt
 * is part of what the tests run on.
 *
 * @type {Record<ManagerName, { probe: string, update?: string[], install: string[] }>}
 */
const MANAGERS = {
  apt: {
    probe: "apt-get",
    update: ["apt-get", "update", "-q"],
    install: ["apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"],
  },
  dnf: { probe: "dnf", install: ["dnf", "install", "-y", "--setopt=install_weak_deps=False"] },
  apk: { probe: "apk", install: ["apk", "add", "--no-cache"] },
};

/**
 * Installs what is missing from the system. Without root it only says what will not work.
 *
 * @param {{ tests: boolean }} wanted
 */
export async function installSystemPackages(wanted) {
  const missing = await missingTools(wanted);
  if (missing.length === 0) return;
  const name = /** @type {ManagerName[]} */ (Object.keys(MANAGERS)).find(
    (candidate) => findCommand(MANAGERS[candidate].probe) !== undefined,
  );
  const installable = missing.filter((tool) => name !== undefined && tool.packages[name] !== null);
  explain(missing.filter((tool) => !installable.includes(tool)));
  if (name === undefined || installable.length === 0) return;

  const manager = MANAGERS[name];
  const packages = [...new Set(installable.map((tool) => tool.packages[name] ?? ""))];
  const commands = [...(manager.update ? [manager.update] : []), [...manager.install, ...packages]];
  const byHand = commands.map((command) => `sudo ${command.join(" ")}`).join(" && ");
  if (!isRoot) {
    explain(installable);
    say(`  To install it: ${byHand}`);
    return;
  }

  say("Missing from this system, and what needs it:");
  for (const tool of installable) say(`  ${tool.name.padEnd(22)} ${tool.purpose}`);
  await step(`install with ${name}: ${packages.join(" ")}`, byHand, async () => {
    for (const [command = "", ...args] of commands) {
      await runCommand(command, args, { env: { DEBIAN_FRONTEND: "noninteractive" } });
    }
    const still = (await missingTools(wanted)).filter((tool) => installable.includes(tool));
    if (still.length > 0) {
      throw new Error(`installed, but not found: ${still.map((tool) => tool.name).join(", ")}`);
    }
  });
}

/** @param {import("./tools.mjs").Tool[]} missing */
function explain(missing) {
  for (const tool of missing) say(`! ${tool.name} is missing: ${tool.purpose} will not work`);
}
