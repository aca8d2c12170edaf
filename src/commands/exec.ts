import { attach } from "./attach.ts";
import { detachKeysOption, usualDetachKeys } from "./detach-keys.ts";
import { parseDuration } from "./duration.ts";
import { attachKept } from "./kept-exec.ts";
import { flag, value } from "./option.ts";
import { defined, environmentOf, processOptions } from "./sandbox-options.ts";
import { needTerminal, terminalOf } from "./terminal.ts";
import { defineVerb } from "./verb.ts";

export const exec = defineVerb({
  description:
    "Flags stand before REF; everything after it is the command, passed on exactly as given: no shell, no joining.\n" +
    "Exits with the command's own code; 124 when its time was up, 126 or 127 when it could not be run, 125 when dsec\n" +
    "failed. Ctrl-C goes to the command. Without -d the command ends with this process; with -t it is hung up when this\n" +
    "process ends, and goes on when the connection is lost.",
  operands: "<ref> <command...>",
  passThrough: true,
  examples: [
    "dsec exec web-1 -- ls -l /tmp",
    "dsec exec -i web-1 -- tar -x -C /src < src.tar",
    "dsec exec -it web-1 bash",
    "dsec exec -d web-1 -- ./server   # then: dsec logs web-1",
    "dsec exec -dit web-1 bash   # then: dsec attach -i web-1",
  ],
  options: {
    interactive: flag("-i, --interactive", "give the command this stdin; null stdin otherwise"),
    tty: flag("-t, --tty", "give it a terminal; the detach keys leave it running"),
    detachKeys: detachKeysOption("ctrl-p,ctrl-q unless given, '' for none"),
    detach: flag(
      "-d, --detach",
      "record its output on the node and do not wait; prints the exec's id; -i and -t are for `dsec attach`",
    ),
    ...processOptions,
    timeout: value("--timeout <duration>", "kill it after this time: 30s, 5m", parseDuration),
  },
  run: async ({ io, client }, options, [ref = "", ...argv]) => {
    const { interactive, tty, detach, detachKeys = usualDetachKeys, user, workdir, timeout } = options;
    if (!detach) needTerminal(io, { tty, stdin: interactive });
    const env = await environmentOf(options, io);
    const sandbox = await (await client()).get(ref);
    const command = { env, ...defined({ user, cwd: workdir, timeoutMs: timeout }) };
    if (detach) {
      const terminal = tty ? terminalOf(env, io) : {};
      const id = await sandbox.execDetached(argv, { ...command, stdin: interactive, ...terminal });
      return { type: "text", text: `${id}\n` };
    }
    const process = await sandbox.spawn(argv, {
      ...command,
      stdin: interactive,
      // as under docker, a connection that is lost does not end what has a terminal
      ...(tty ? { ...terminalOf(env, io), onDisconnect: "keep" } : {}),
    });
    const streams = { stdin: interactive, tty, detachKeys };
    if (tty) return attachKept(process, sandbox, io, streams);
    const left = await attach(process, io, streams);
    return { type: "exit", code: left.type === "exit" ? left.exitCode : 0 };
  },
});
