import { join } from "node:path";
import { runOnTerminal } from "./setup/command.mjs";
import { projectNode, projectRoot } from "./setup/project.mjs";
import { runScript } from "./setup/steps.mjs";

/** `npm run soak -- --minutes 30`: arguments are those of test/soak/soak.ts. */
await runScript(async () =>
  runOnTerminal(projectNode, [join(projectRoot, "test", "soak", "soak.ts"), ...process.argv.slice(2)]),
);
