import { completionModel, globalOptionModels } from "../../src/commands/completion-model.ts";
import type { OptionModel, VerbModel } from "../../src/commands/completion-model.ts";
import { errorTable } from "../../src/protocol/errors.ts";
import type { ExecExit } from "../../src/protocol/exec.ts";
import type { EndReason } from "../../src/protocol/sandbox.ts";

/** The command line's reference, docs/cli.md, from the table of verbs and the table of errors. */
export async function renderReference(): Promise<string> {
  const verbs = await completionModel();
  return [
    introduction,
    "## Options of every verb\n",
    optionTable(globalOptionModels),
    precedence,
    ...sections(verbs),
    "## Error codes\n",
    errorsIntroduction,
    errorRows(),
    "## How commands and sandboxes end\n",
    endsIntroduction,
    meaningTable("Cause", causes),
    meaningTable("End reason", endReasons),
  ].join("\n");
}

const introduction = `# Command line

<!-- Written by test/commands/reference.test.ts from the program itself: change src/commands/, then run it with -u. -->

\`dsec [options] VERB [options] …\`. \`dsec help VERB\` shows what stands here, too.

- **References.** Wherever REF stands: an id, a unique prefix of one, or a name.
- **Output.** Data on stdout, everything else on stderr. \`-o table|wide|json|ndjson|yaml|name\`; \`name\` prints what other verbs accept.
  Lists are JSON arrays, \`ndjson\` an object a line. Ids are never shortened. Colours only on a terminal, and not with \`--no-color\`
  or \`NO_COLOR\`.
- **Durations.** \`90s\`, \`5m\`, \`1h30m\`, \`2d\`; a plain number is seconds.
- **Sizes.** As docker: \`512m\`, \`2g\` are powers of 1,024, a plain number is bytes. Less than 1 MiB without a suffix is taken for a mistake. Limits are
  rounded up to whole MiB.
- **Several sandboxes.** Verbs that take several REFs also take \`-l\`, \`--state\`, \`--owner\`, \`--backend\` or \`--all\` instead, never both. One that fails does
  not stop the others; its error is on stderr, and the exit code is that of the first failure.
- **Exit codes.** Of \`run\`, \`exec\` and \`shell\`: the command's own, 0 to 255; 128 + N when signal N ended it; 124 when its time was up. Of dsec itself: 2
  for usage, 126 and 127 when a command cannot be run, 125 for everything else; 128 + N when a signal ended it.
- **Through npx.** \`npx -- dsec …\`, with the dashes, where \`--env-file\` is used: npx is run by Node, which would take that option for its own.
- **Errors.** \`dsec: message (code)\`, its causes and a hint. With \`-o json\`, \`-o ndjson\` or DSEC_ERROR_FORMAT=json one JSON object: \`code\`, \`message\`,
  \`retryable\`, \`ambiguous\` (it may have taken effect), \`details\`, \`causes\`, \`hint\`.
`;

const precedence = `
A flag goes before the environment, the environment before the context, the context before the top level of the config file. The file is
\`~/.config/dsec/config.yaml\` (XDG_CONFIG_HOME, DSEC_CONFIG):

\`\`\`yaml
current-context: lab
contexts:
  lab:
    address: https://lab.example:7443
    token-file: lab.token # relative to this file, or ~/…
    ca-file: lab.pem
  here: {} # the fleet of this machine
\`\`\`

Without any of it the fleet of this machine is meant: \`/run/dsec\` and \`/var/lib/dsec\` as root, else below XDG_RUNTIME_DIR and
XDG_DATA_HOME. Errors in the file are \`config_invalid\`, with line and column.
`;

const errorsIntroduction = `Scripts test the code, never the text. A retry of what is not retryable fails again.
`;

const endsIntroduction = `An end is no error and has no code. A command's is its exit code and \`cause\`; a sandbox's is its \`endReason\`, which also tells what the
task did from what the platform did.
`;

const causes: Readonly<Record<ExecExit["cause"], string>> = {
  exited: "by itself",
  signaled: "by a signal; exit code 128 + N",
  timeout: "killed when the time of `--timeout` was up; exit code 124",
  oom: "killed because the sandbox's memory limit was reached; exit code 137",
  killed: "killed by dsec, e.g. with its sandbox or after its client",
};

const endReasons: Readonly<Record<EndReason, string>> = {
  stopped: "`dsec stop`, or with the fleet",
  idle_ttl: "nothing had used it for the time of `--ttl`",
  max_lifetime: "the time of `--max-lifetime` was up",
  exited: "the command that it was run for ended",
  oom: "its memory limit was reached and ended it",
  disk_full: "its disk was full and ended it",
  start_failed: "it did not start",
  evicted: "the node needed the room",
  node_lost: "its node is gone",
  agent_lost: "the connection to its agent was lost for good",
};

function meaningTable(title: string, meanings: Readonly<Record<string, string>>): string {
  const rows = Object.entries(meanings).map(([name, meaning]) => `| \`${name}\` | ${meaning} |`);
  return [`| ${title} | |`, "| --- | --- |", ...rows, ""].join("\n");
}

function sections(verbs: readonly VerbModel[]): string[] {
  let heading = "";
  return verbs.flatMap((verb) => {
    const opening = verb.heading === heading ? [] : [`## ${verb.heading}\n`];
    heading = verb.heading;
    return [...opening, section(verb)];
  });
}

function section({ path, summary, verb, options, children }: VerbModel): string {
  const name = path.join(" ");
  const parts = [`### dsec ${name}\n`, `${capitalise(summary)}.\n`];
  if (verb === undefined)
    return [...parts, `Verbs: ${children.map((child) => `\`${child}\``).join(", ")}.\n`].join("\n");
  parts.push(
    "```\n" +
      ["dsec", name, ...(options.length > 0 ? ["[options]"] : []), verb.operands ?? ""].join(" ").trimEnd() +
      "\n```\n",
  );
  if (verb.description !== undefined) parts.push(`${verb.description}\n`);
  if (options.length > 0) parts.push(optionTable(options));
  if (verb.examples !== undefined) parts.push("```sh\n" + verb.examples.join("\n") + "\n```\n");
  return parts.join("\n");
}

function optionTable(options: readonly OptionModel[]): string {
  const rows = options.map(({ flags, help }) => `| \`${flags}\` | ${help.replaceAll("|", "\\|")} |`);
  return ["| Option | |", "| --- | --- |", ...rows, ""].join("\n");
}

function errorRows(): string {
  const rows = Object.entries(errorTable).map(
    ([code, { exit, status, retryable }]) =>
      `| \`${code}\` | ${exit} | ${status} | ${retryable ? "yes" : ""} |`,
  );
  return ["| Code | Exit code | HTTP | Retryable |", "| --- | --- | --- | --- |", ...rows, ""].join("\n");
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
