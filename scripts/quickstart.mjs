import { setUp } from "./setup.mjs";
import { runCommand, runOnTerminal } from "./setup/command.mjs";
import { dsecCommand, isRoot, projectNode } from "./setup/project.mjs";
import { runScript, say, step } from "./setup/steps.mjs";

const NEXT = `
What to try next:
  id=$(npx dsec run -d --ttl 5m --memory 512m --cpus 1 debian)   # a sandbox that waits for commands
  npx dsec exec $id -- cat /etc/os-release                       # run one in it
  npx dsec ls                                                    # what runs
  npx dsec stop $id
  npx dsec doctor                                                # what works on this machine, and why not
  npx dsec down                                                  # end the fleet
`;

await runScript(async () => {
  await setUp({ tests: false });
  if (!(await fleetAnswers())) {
    await step("start a local fleet", "npx dsec up", () =>
      runCommand(projectNode, [dsecCommand, "up", "-d"], { shown: true }),
    );
  }
  if (!isRoot) {
    say("! not root: no container is run here. What works, and what mends the rest:");
    return runOnTerminal(projectNode, [dsecCommand, "doctor"]);
  }
  say(`$ npx dsec run debian -- python3 -c 'print("hello")'`);
  const run = ["run", "debian", "--", "python3", "-c", 'print("hello")'];
  const exitCode = await runOnTerminal(projectNode, [dsecCommand, ...run]);
  if (exitCode === 0) say(NEXT);
  return exitCode;
});

async function fleetAnswers() {
  try {
    await runCommand(projectNode, [dsecCommand, "ls", "-o", "name"]);
    return true;
  } catch {
    return false;
  }
}
