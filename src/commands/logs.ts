import { DSecError } from "../protocol/errors.ts";
import type { LogLine } from "../protocol/exec.ts";
import { eventView, execView } from "./columns.ts";
import { parseInstant } from "./duration.ts";
import { listingFormats } from "./format.ts";
import type { Format } from "./format.ts";
import { note, write } from "./io.ts";
import type { Io } from "./io.ts";
import { flag, parseCount, text, value } from "./option.ts";
import { done, listingOf } from "./outcome.ts";
import { defined } from "./sandbox-options.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

export const logs = defineVerb({
  description:
    "Output is recorded of detached commands (run -d, exec -d). Without --exec: of the command that the sandbox ends\n" +
    "with, else of the newest. Head and tail are kept of what is longer than the node's limit. -o ndjson keeps the\n" +
    "streams apart, with times; data is base64.",
  operands: "<ref>",
  examples: ["dsec logs -f web-1", "dsec logs --since 5m --tail 100 web-1", "dsec logs --events web-1"],
  options: {
    follow: flag("-f, --follow", "go on until the command has ended"),
    tail: value("-n, --tail <lines>", "only so many lines from the end", parseCount),
    since: text("--since <time>", "only what is younger: 5m, or 2026-01-31T12:00:00Z"),
    exec: text("--exec <id>", "of this command; `dsec logs --execs` lists them"),
    execs: flag("--execs", "list the commands instead"),
    events: flag("--events", "show what happened to the sandbox instead"),
  },
  formats: listingFormats,
  run: async ({ io, format, client }, options, [ref = ""]) => {
    const sandbox = await (await client()).get(ref);
    if (options.events) return { type: "listing", listing: listingOf(eventView, await sandbox.events()) };
    if (options.execs) return { type: "listing", listing: listingOf(execView, await sandbox.execs()) };
    const show = showerOf(format);
    const { follow, tail, exec } = options;
    const since = options.since === undefined ? undefined : parseInstant(options.since, io.now());
    const lines = sandbox.logs({ follow, ...defined({ tail, exec, since }) });
    for await (const line of lines) {
      if (io.readerGone.aborted) break;
      await show(line, io);
    }
    return done;
  },
});

function showerOf(format: Format): (line: LogLine, io: Io) => Promise<void> {
  if (format === "ndjson") return showJson;
  if (format === "table") return showText;
  throw new DSecError(
    "invalid_argument",
    `recorded output is shown as it is, or as ndjson, not as ${format}`,
  );
}

async function showJson(line: LogLine, io: Io): Promise<void> {
  await write(io.stdout, `${JSON.stringify(line)}\n`);
}

async function showText(line: LogLine, io: Io): Promise<void> {
  if (line.type === "output")
    await write(line.stream === "stdout" ? io.stdout : io.stderr, Buffer.from(line.data, "base64"));
  else if (line.type === "gap") note(io, `[${formatSize(line.bytes)} were not kept]`);
}
