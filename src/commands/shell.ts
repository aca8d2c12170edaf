import { attach } from "./attach.ts";
import { detachKeysOption } from "./detach-keys.ts";
import { isTerminal, note } from "./io.ts";
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
    "stdin. It ends with this process and with the connection, unless there are detach keys: then it is as exec -it.",
  operands: "<ref>",
  examples: ["dsec shell web-1", "dsec shell -u 1000 -w /src web-1", "dsec shell web-1 < commands.sh"],
  options: {
    detachKeys: detachKeysOption("none unless given: ctrl-p is a shell's"),
    ...processOptions,
  },
  run: async ({ io, client }, options, [ref = ""]) => {
    const tty = isTerminal(io.stdin) && isTerminal(io.stdout);
    const env = await environmentOf(options, io);
    const sandbox = await (await client()).get(ref);
    const { detachKeys = new Uint8Array(0) } = options;
    const process = await sandbox.spawn(shellCommand, {
      env,
      ...(tty ? terminalOf(env, io) : {}),
      ...defined({ user: options.user, cwd: options.workdir }),
      stdin: true,
      onDisconnect: tty && detachKeys.length > 0 ? "keep" : "kill",
    });
    const left = await attach(process, io, { stdin: true, tty, detachKeys });
    if (left.type === "exit") return { type: "exit", code: left.exitCode };
    note(io, `detached; exec ${process.execId} goes on`);
    return { type: "exit", code: 0 };
  },
});
