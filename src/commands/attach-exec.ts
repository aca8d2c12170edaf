import { DSecError } from "../protocol/errors.ts";
import type { ExecRecord } from "../protocol/exec.ts";
import type { Sandbox } from "../sdk/index.ts";
import { attach } from "./attach.ts";
import { detachKeysOption, usualDetachKeys } from "./detach-keys.ts";
import { note } from "./io.ts";
import { flag } from "./option.ts";
import { formatSize } from "./size.ts";
import { needTerminal } from "./terminal.ts";
import { defineVerb } from "./verb.ts";

export const attachExec = defineVerb({
  description:
    "Of commands that run detached, or were left by their detach keys or a lost link. Without EXEC: the one that the\n" +
    "sandbox ends with, else the newest that runs. Leaving never ends it: ctrl-c only leaves, unless -i lends it a\n" +
    "terminal: then the detach keys leave, and ctrl-c goes to the command. Exits with the command's own code when it\n" +
    "ends. A reader slower than what is kept of the output is told how much is missing; it never slows the command.",
  operands: "<ref> [exec]",
  examples: ["dsec attach web-1", "dsec attach -i web-1 3f2a9c5be01d7784   # ids: dsec logs --execs web-1"],
  options: {
    interactive: flag("-i, --interactive", "give the command this stdin, where it was started with one"),
    fromStart: flag("--from-start", "first what has been recorded so far"),
    sigProxy: flag("--sig-proxy", "hand ctrl-c and other signals on to the command"),
    detachKeys: detachKeysOption("ctrl-p,ctrl-q unless given, '' for none"),
  },
  run: async ({ io, client }, options, [ref = "", exec]) => {
    const { interactive, fromStart, sigProxy, detachKeys = usualDetachKeys } = options;
    const sandbox = await (await client()).get(ref);
    const { id, tty } = await choose(sandbox, exec);
    needTerminal(io, { tty, stdin: interactive });
    const dropped = { stdout: 0, stderr: 0 };
    const process = await sandbox.attach(id, {
      stdin: interactive,
      from: fromStart ? "start" : "now",
      onGap: (stream, bytes) => {
        dropped[stream] += bytes;
        note(io, `[${formatSize(bytes)} were not kept]`);
      },
    });
    const { from } = process;
    const left = await attach(process, io, {
      stdin: interactive,
      // who only watches lends it no terminal
      tty: tty && interactive,
      detachKeys,
      signals: sigProxy,
      missing: () => ({ stdout: from.stdout + dropped.stdout, stderr: from.stderr + dropped.stderr }),
    });
    if (left.type === "exit") return { type: "exit", code: left.exitCode };
    note(io, `detached; exec ${id} goes on`);
    return { type: "exit", code: 0 };
  },
});

/** @throws DSecError `not_found` */
async function choose(sandbox: Sandbox, id: string | undefined): Promise<ExecRecord> {
  const execs = await sandbox.execs();
  const running = execs.filter(({ recorded, state }) => recorded && state === "running");
  const chosen =
    id === undefined
      ? (running.findLast(({ endsSandbox }) => endsSandbox) ?? running.at(-1))
      : execs.find((exec) => exec.id === id);
  if (chosen !== undefined) return chosen;
  throw new DSecError(
    "not_found",
    id === undefined
      ? `no detached command runs in sandbox ${sandbox.id}`
      : `sandbox ${sandbox.id} has no exec ${id}`,
  );
}
