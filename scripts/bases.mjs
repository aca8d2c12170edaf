import { runCommand } from "./setup/command.mjs";
import { findCommand, findStaticBusybox } from "./setup/find-command.mjs";
import { dsecCommand, isRoot, projectNode } from "./setup/project.mjs";
import { say, step } from "./setup/steps.mjs";

/** The bases every machine has. debian takes a minute or two: it is made from the distribution's packages. */
const BASES = [
  {
    needs: "a static busybox",
    present: () => findStaticBusybox() !== undefined,
    build: ["layer", "build", "busybox:latest", "--from", "busybox", "--if-missing"],
  },
  {
    needs: "mmdebstrap",
    present: () => findCommand("mmdebstrap") !== undefined,
    build: [
      "layer",
      "build",
      "debian:bookworm",
      "--from",
      "debian:bookworm",
      "--if-missing",
      "--tag",
      "latest",
    ],
  },
];

export async function buildBases() {
  if (!isRoot) {
    say("! not root: base layers are not built, so only the backends that need none will work");
    return;
  }
  for (const { needs, present, build } of BASES) {
    if (!present()) {
      say(`! ${needs} is missing: dsec ${build.join(" ")} is left out`);
      continue;
    }
    const args = [dsecCommand, ...build];
    await step(`base layer ${build[2]}`, `npx dsec ${build.join(" ")}`, () =>
      runCommand(projectNode, args, { shown: true }),
    );
  }
}
