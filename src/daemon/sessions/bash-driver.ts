import { apart, commandStreams, quoted, scriptsBy, type ShellDriver, withEnv } from "./shell-driver.ts";

/** From here on a here-document is a pipe and needs no file: 100 × major + minor. */
const pipedDocuments = 501;
/** Characters of a here-document that surely fit a pipe. */
const documentMax = 60_000;

const { trapWhileRunning, report, enter, leave } = scriptsBy("builtin");

/*
 * A sourced command can be given up by `return`. The one in the trap leaves the innermost function; the DEBUG trap does the
 * same before whatever would come next, until the top is reached.
 */
const trap = trapWhileRunning(
  '\\builtin set -T;\\builtin trap "\\\\builtin return 124" DEBUG;\\builtin return 124',
);
const version = "$((BASH_VERSINFO[0]*100+BASH_VERSINFO[1]))";

export const bashDriver: ShellDriver = {
  argv: ["bash", "--norc", "--noprofile"],
  prologue: (nonce) => apart(`${trap};__dsec=${version};${report(nonce)}`),
  command(command, env, level, nonce) {
    const document = isAscii(command) ? command : `\\builtin eval ${word(command)}`;
    // a builtin called by `builtin` loses the variables set for it at the first pipe
    const hasEnv = Object.keys(env).length > 0;
    const abortable = level >= pipedDocuments && document.length <= documentMax;
    const [run, body] = abortable
      ? [hasEnv ? "\\eval '\\. /dev/fd/0'" : "\\builtin . /dev/fd/0", `\n${document}\n${nonce}`]
      : [`${hasEnv ? "\\eval" : "\\builtin eval"} ${word(command)}`, ""];
    const input = abortable ? `<<'${nonce}'` : "</dev/null";
    const line = withEnv(env, `${run} ${input} ${commandStreams}`, word);
    const forget = hasEnv ? "\\unset -v __dsec;\\unset -f eval" : "\\unset -v __dsec";
    const text = `${forget};${line}${body}\n__dsec=$?;${report(nonce)}`;
    return { text: inBulk(text), abortable };
  },
  enter,
  leave,
  afterAbort: apart("\\builtin trap - DEBUG;\\builtin set +T"),
};

/**
 * bash reads its own lines from a pipe byte by byte, but what `read -N` counts in one go. At an exit it does not undo what
 * was redirected outside of `eval`: stdout is left alone there, for EXIT traps.
 */
function inBulk(lines: string): string {
  const text = `{ ${lines}\n} >/dev/null 2>&1`;
  const read = `\\builtin read -rN${text.length} __dsec;\\builtin eval "$__dsec"`;
  return `\n{ ${read}\n} 8>&1 9>&2 2>/dev/null\n${text}`;
}

function isAscii(text: string): boolean {
  return /^[\0-\x7F]*$/.test(text);
}

/** A word of ASCII alone: what `read` counts depends on the locale, which is the command's to change. */
function word(text: string): string {
  if (isAscii(text)) return quoted(text);
  let escaped = "";
  for (const byte of Buffer.from(text)) {
    if (byte >= 0x80) escaped += `\\${byte.toString(8)}`;
    else
      escaped +=
        byte === 0x27 || byte === 0x5c ? `\\${String.fromCharCode(byte)}` : String.fromCharCode(byte);
  }
  return `$'${escaped}'`;
}
