import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runOnTerminal } from "./setup/command.mjs";
import { projectNode, projectRoot } from "./setup/project.mjs";
import { runScript, say } from "./setup/steps.mjs";

const FOLDER = join(projectRoot, "test", "bench");

await runScript(async () => {
  const [name, ...args] = process.argv.slice(2);
  const file = join(FOLDER, `${name}.ts`);
  if (name === undefined || !existsSync(file)) {
    const names = readdirSync(FOLDER)
      .filter((entry) => entry.endsWith(".ts"))
      .map((entry) => entry.slice(0, -".ts".length));
    say(`usage: npm run bench -- NAME [ARGUMENT…]; NAME is one of: ${names.join(", ")}`);
    return 2;
  }
  return runOnTerminal(projectNode, [file, ...args]);
});
