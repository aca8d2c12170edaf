import { apart, commandStreams, quoted, scriptsBy, type ShellDriver, withEnv } from "./shell-driver.ts";

const { trapWhileRunning, report, enter, leave } = scriptsBy("command");

/*
 * Under `command`, an error in what `eval` runs comes back to the top instead of ending the shell: a syntax error, and in
 * dash and ash also the one that the trap makes.
 */
const trap = trapWhileRunning('{ : "${__dsec_aborted?}";} 2>/dev/null');

/** dash, busybox ash, and what else is a POSIX shell. */
export const posixDriver: ShellDriver = {
  argv: ["/bin/sh"],
  prologue: (nonce) => apart(`${trap};__dsec=0;${report(nonce)}`),
  command(command, env, _level, nonce) {
    const evaluate = withEnv(env, `\\command eval ${quoted(command)} </dev/null ${commandStreams}`);
    const text = apart(`\\unset -v __dsec;${evaluate}\n__dsec=$?;${report(nonce)}`);
    return { text, abortable: true };
  },
  enter,
  leave,
  afterAbort: "",
};
