import { DSecError } from "../protocol/errors.ts";
import type { DSecClient } from "../sdk/client.ts";
import type { Sandbox } from "../sdk/sandbox.ts";
import { attach } from "./attach.ts";
import { sandboxView } from "./columns.ts";
import { detachKeysOption, usualDetachKeys } from "./detach-keys.ts";
import { parseDuration } from "./duration.ts";
import { formatsFrom } from "./format.ts";
import { exitCodeOfSignal, onStopSignal } from "./interrupt.ts";
import type { StopSignal } from "./interrupt.ts";
import { note } from "./io.ts";
import type { Io } from "./io.ts";
import { flag, value } from "./option.ts";
import type { OptionValues } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { Outcome } from "./outcome.ts";
import { defined, sandboxOptions, specOf } from "./sandbox-options.ts";
import { showStart } from "./start-progress.ts";
import { needTerminal, terminalOf } from "./terminal.ts";
import { defineVerb } from "./verb.ts";

/** Milliseconds to wait for the end of a sandbox whose command has ended. */
const endMs = 10_000;

/** Milliseconds after a Ctrl-C in which it may still come to run, and is removed then. */
const interruptedMs = 3000;

/** Seconds until it must run: an image may have to be fetched. As long as a coordinator waits. */
const createSeconds = 600;

const runOptions = {
  detach: flag("-d, --detach", "print the sandbox's id and do not wait; the command's output is recorded"),
  interactive: flag("-i, --interactive", "give the command this stdin; null stdin otherwise"),
  tty: flag("-t, --tty", "give the command a terminal; the detach keys leave it running"),
  detachKeys: detachKeysOption("ctrl-p,ctrl-q unless given, '' for none"),
  timeout: value("--timeout <duration>", "kill the command after this time: 30s, 5m", parseDuration),
  rm: flag("--rm", "forget the sandbox's record as soon as its command has ended"),
  quiet: flag("-q, --quiet", "no progress and no remarks on stderr"),
  ...sandboxOptions,
};
type RunValues = OptionValues<typeof runOptions>;

export const run = defineVerb({
  description:
    "With a command: runs it, and the sandbox ends with it; exits with the command's own code. Flags stand before\n" +
    "IMAGE, everything after it is the command. Without a command the sandbox holds only the agent and waits for\n" +
    "`dsec exec` until it is stopped or its time is up; its id is printed.\n" +
    "IMAGE is the first of: a published layer, an imported image, an image of the Docker daemon, what its registry has\n" +
    "(imported then, once per node); --pull never leaves the registry out, --pull always asks it first and alone.\n" +
    "Records of ended sandboxes are kept for a while, so that logs and exit codes can be read; --rm forgets them at once.\n" +
    "Sizes: a plain number is bytes; k, m, g, t are powers of 1,024. Durations: a plain number is seconds.",
  operands: "<image> [command...]",
  passThrough: true,
  examples: [
    `dsec run debian -- python3 -c 'print("hello")'`,
    "id=$(dsec run -d --ttl 5m --memory 512m --cpus 1 debian)",
    "dsec run -it --rm debian bash",
  ],
  options: runOptions,
  formats: formatsFrom("name"),
  run: async ({ io, client }, options, [image = "", ...argv]) => {
    checkOptions(options, argv, io);
    const spec = await specOf(image, options, io);
    const fleet = await client();
    const created = await untilCreated(fleet, spec, options.quiet, io);
    if ("interruptedBy" in created) return { type: "exit", code: exitCodeOfSignal(created.interruptedBy) };
    const { sandbox } = created;
    if (argv.length > 0 && !options.detach) return runAttached(sandbox, argv, options, io);
    if (argv.length > 0)
      await orRemove(sandbox, () => sandbox.execDetached(argv, { endsSandbox: true, ...timeoutOf(options) }));
    else if (!options.detach && !options.quiet) note(io, `open a shell in it: dsec shell ${sandbox.id}`);
    return { type: "listing", single: true, listing: listingOf(sandboxView, [sandbox.info]) };
  },
});

function checkOptions(options: RunValues, argv: readonly string[], io: Io): void {
  const attached = argv.length > 0 && !options.detach;
  if (!attached && (options.interactive || options.tty))
    throw new DSecError("invalid_argument", "-i and -t need a command to attach to, and go with no -d");
  if (!attached && options.rm)
    throw new DSecError("invalid_argument", "--rm needs a command that is waited for, and goes with no -d");
  if (argv.length === 0 && options.timeout !== undefined)
    throw new DSecError("invalid_argument", "--timeout is the command's: see --ttl and --max-lifetime");
  if (attached) needTerminal(io, { tty: options.tty, stdin: options.interactive });
}

/**
 * A Ctrl-C while the sandbox is being made takes effect once it is there: so it is removed, and nothing is left. What takes longer, an
 * import, is left to the fleet, which gives up what nobody waits for within half a minute.
 */
async function untilCreated(
  fleet: DSecClient,
  spec: Parameters<DSecClient["createSandbox"]>[0],
  quiet: boolean,
  io: Io,
): Promise<{ sandbox: Sandbox } | { interruptedBy: StopSignal }> {
  let interruptedBy: StopSignal | undefined;
  const given = new AbortController();
  let patience: NodeJS.Timeout | undefined;
  const dispose = onStopSignal((signal) => {
    interruptedBy = signal;
    // a second one is for the impatient
    dispose();
    patience = setTimeout(() => given.abort(), interruptedMs);
  });
  const shown = quiet ? undefined : showStart(fleet, spec.image, io);
  try {
    const sandbox = await fleet
      .createSandbox(spec, { timeout: createSeconds, signal: given.signal })
      .finally(shown);
    if (interruptedBy === undefined) return { sandbox };
    await sandbox.remove();
    return { interruptedBy };
  } catch (error) {
    if (interruptedBy === undefined || !given.signal.aborted) throw error;
    return { interruptedBy };
  } finally {
    clearTimeout(patience);
    dispose();
  }
}

async function runAttached(
  sandbox: Sandbox,
  argv: readonly string[],
  options: RunValues,
  io: Io,
): Promise<Outcome> {
  const { interactive, tty, detachKeys = usualDetachKeys } = options;
  const command = await orRemove(sandbox, () =>
    sandbox.spawn(argv, {
      endsSandbox: true,
      stdin: interactive,
      ...timeoutOf(options),
      ...(tty ? { ...terminalOf({}, io), onDisconnect: "keep" } : {}),
    }),
  );
  const left = await attach(command, io, { stdin: interactive, tty, detachKeys });
  if (left.type === "detached") {
    if (!options.quiet) note(io, `detached; sandbox ${sandbox.id} goes on`);
    return { type: "exit", code: 0 };
  }
  // so that it is listed as ended when we return
  await unlessForgotten(sandbox.wait({ timeoutMs: endMs }));
  if (options.rm) await unlessForgotten(sandbox.remove());
  return { type: "exit", code: left.exitCode };
}

/** A fleet that keeps no records of what has ended may have forgotten it already. */
async function unlessForgotten(asked: Promise<unknown>): Promise<void> {
  await asked.catch((error: unknown) => {
    if (!(error instanceof DSecError) || error.code !== "not_found") throw error;
  });
}

/** A command that could not be started leaves no sandbox behind. */
async function orRemove<T>(sandbox: Sandbox, start: () => Promise<T>): Promise<T> {
  try {
    return await start();
  } catch (error) {
    await sandbox.remove().catch(() => undefined);
    throw error;
  }
}

function timeoutOf({ timeout }: RunValues): { readonly timeoutMs?: number } {
  return defined({ timeoutMs: timeout });
}
