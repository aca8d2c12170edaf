import { attach } from "./attach.ts";
import { detachKeysOption } from "./detach-keys.ts";
import { isTerminal } from "./io.ts";
import { attachKept } from "./kept-exec.ts";
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
    const isKept = tty && detachKeys.length > 0;
    const process = await sandbox.spawn(shellCommand, {
      env,
      ...(tty ? terminalOf(env, io) : {}),
      ...defined({ user: options.user, cwd: options.workdir }),
      stdin: true,
      onDisconnect: isKept ? "keep" : "kill",
    });
    const streams = { stdin: true, tty, detachKeys };
    if (isKept) return attachKept(process, sandbox, io, streams);
    const left = await attach(process, io, streams);
    return { type: "exit", code: left.type === "exit" ? left.exitCode : 0 };
  },
});
