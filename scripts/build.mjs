import { chmodSync, existsSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { runCommand } from "./setup/command.mjs";
import { dsecCommand, projectRoot } from "./setup/project.mjs";
import { runScript, step } from "./setup/steps.mjs";

const OUTPUT = join(projectRoot, "dist");

/** @type {[name: string, folder: string][]} */
const PROGRAMS = [
  ["the agent", "src/agent"],
  ["the launcher", "src/backends/container/runc/launcher"],
  ["the audit's programs", "src/daemon/audit/kernel"],
];

/** Builds dist/: the TypeScript and the C programs. The compilers do only what has changed. */
export async function build() {
  await step("compile TypeScript", "npx tsc -p tsconfig.json", async () => {
    await runCommand("tsc", ["-p", "tsconfig.json"]);
    removeOrphans();
    chmodSync(dsecCommand, 0o755);
    linkCommand();
  });
  for (const [name, folder] of PROGRAMS) {
    const make = ["--no-print-directory", "-C", folder];
    await step(`build ${name}`, `make ${make.join(" ")}`, () => runCommand("make", make));
  }
}

/** npm links the commands of dependencies only; with the link `npx dsec` starts at once and without warnings. */
function linkCommand() {
  const link = join(projectRoot, "node_modules", ".bin", "dsec");
  rmSync(link, { force: true });
  symlinkSync(relative(dirname(link), dsecCommand), link);
}

/** The compiler leaves the output of deleted sources behind; it must not be packed or imported. */
function removeOrphans() {
  for (const folder of ["bin", "src"]) {
    const names = readdirSync(join(OUTPUT, folder), { recursive: true, encoding: "utf8" });
    for (const path of names.map((name) => join(OUTPUT, folder, name))) {
      const [stem, extension] = path.split(/(\.d\.ts|\.js\.map|\.js)$/);
      if (stem === undefined || extension === undefined) continue;
      if (!existsSync(join(projectRoot, relative(OUTPUT, `${stem}.ts`)))) rmSync(path);
    }
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await runScript(async () => {
    await build();
    return 0;
  });
}
