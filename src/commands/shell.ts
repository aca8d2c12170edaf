import { attach } from "./attach.ts";
import { isTerminal } from "./io.ts";
import { defined, environmentOf, processOptions } from "./sandbox-options.ts";
import { terminalOf } from "./terminal.ts";
import { defineVerb } from "./verb.ts";

/** bash where the sandbox has it, else sh: one exec, no probing. */
const shellCommand = [
  "/bin/sh",
  "-c",
  "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi",
];

export const shell = defineVerb({
  description:
    "bash where there is one, else sh. On a terminal it has one of the same size; otherwise it reads commands from\n" +
    "stdin. It ends with this process.",
  operands: "<ref>",
  examples: ["dsec shell web-1", "dsec shell -u 1000 -w /src web-1", "dsec shell web-1 < commands.sh"],
  options: processOptions,
  run: async ({ io, client }, options, [ref = ""]) => {
    const tty = isTerminal(io.stdin) && isTerminal(io.stdout);
    const env = await environmentOf(options, io);
    const sandbox = await (await client()).get(ref);
    const process = await sandbox.spawn(shellCommand, {
      env,
      ...(tty ? terminalOf(env, io) : {}),
      ...defined({ user: options.user, cwd: options.workdir }),
      stdin: true,
      onDisconnect: "kill",
    });
    const left = await attach(process, io, { stdin: true, tty, detachKeys: false });
    return { type: "exit", code: left.type === "exit" ? left.exitCode : 0 };
  },
});
