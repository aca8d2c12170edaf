import { pathToFileURL } from "node:url";
import { buildBases } from "./bases.mjs";
import { build } from "./build.mjs";
import { installDependencies } from "./setup/dependencies.mjs";
import { installSystemPackages } from "./setup/packages.mjs";
import { isRoot } from "./setup/project.mjs";
import { runScript, say } from "./setup/steps.mjs";

/**
 * Brings a fresh checkout to where dsec runs. Every step looks first and does nothing where nothing is missing.
 * All of scripts/ runs on Node 20 without any package, because nothing may be installed yet.
 *
 * @param {{ tests: boolean }} wanted `tests`: also what the tests need
 */
export async function setUp(wanted) {
  if (process.platform !== "linux") {
    say("! sandboxes run on Linux only: here dsec can be built and can talk to a fleet elsewhere");
  } else if (!isRoot) {
    say("! not root: containers with engine runc, the network pool and disk limits will not work");
  }
  await installSystemPackages(wanted);
  await installDependencies();
  await build();
  await buildBases();
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await runScript(async () => {
    await setUp({ tests: process.argv.includes("--tests") });
    return 0;
  });
}
