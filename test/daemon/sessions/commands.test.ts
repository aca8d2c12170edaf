import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type SessionFixture, startSessions, testedShells } from "./session-fixture.ts";

/** A sentence, commands of one session, and what they give: stdout and exit codes of each. */
type Row = readonly [string, readonly (readonly [command: string, stdout: string, code?: number])[]];

const rows: readonly Row[] = [
  [
    "keeps the directory",
    [
      ["cd /usr", ""],
      ["pwd", "/usr\n"],
      ["cd share && cd ..", ""],
      ["echo $PWD", "/usr\n"],
    ],
  ],
  [
    "keeps variables, exported or not",
    [
      ["X=5; export Y=6", ""],
      ["echo $X; env | grep ^Y=; env | grep -c ^X= ", "5\nY=6\n0\n", 1],
    ],
  ],
  [
    "keeps functions",
    [
      ["greet() { echo hello $1; }", ""],
      ["greet you", "hello you\n"],
    ],
  ],
  [
    "keeps the umask",
    [
      ["umask 027", ""],
      ["umask", "0027\n"],
    ],
  ],
  [
    "keeps options",
    [
      ["set -f", ""],
      ["echo /us*", "/us*\n"],
    ],
  ],
  [
    "keeps positional parameters",
    [
      ["set -- a 'b c'", ""],
      ['echo $# "$2"', "2 b c\n"],
    ],
  ],
  [
    "keeps descriptors 3 to 7",
    [
      ["exec 3>three; echo x >&3", ""],
      ["echo y >&3; cat three", "x\ny\n"],
    ],
  ],
  [
    "keeps background jobs, and waits for them",
    [
      ["(exit 7) & job=$!", ""],
      ["wait $job", "", 7],
    ],
  ],
  [
    "keeps aliases defined where the shell has them, and its own words apart",
    [
      ["alias command=false builtin=false eval=false printf=false", ""],
      ["shopt -s expand_aliases 2>/dev/null; true", ""],
      ["echo yes", "yes\n"],
    ],
  ],
  [
    "reports any exit code",
    [
      ["(exit 255)", "", 255],
      ["false", "", 1],
      ["true", ""],
      ["sh -c 'kill -9 $$'", "", 137],
    ],
  ],
  [
    "reports a command that is not there",
    [
      ["no-such-command", "", 127],
      ["/etc/passwd", "", 126],
    ],
  ],
  [
    "survives syntax errors",
    [
      ["echo (", "", 2],
      ["if true", "", 2],
      ["echo 'open", "", 2],
      ["echo yes", "yes\n"],
    ],
  ],
  [
    "survives errors of arithmetic",
    [
      ["echo $((1/0)); echo no", "", expect.any(Number)],
      ["echo yes", "yes\n"],
    ],
  ],
  [
    "takes text of several lines, comments and nothing",
    [
      ["# nothing", ""],
      ["", ""],
      ["for i in 1 2\ndo echo $i\ndone # over", "1\n2\n"],
    ],
  ],
  [
    "takes here-documents",
    [
      ["cat <<E\none\n  $((1+1))\nE", "one\n  2\n"],
      ["cat <<'E'\n$x'\"\nE\n", "$x'\"\n"],
    ],
  ],
  [
    "takes quotes, backslashes and other scripts",
    [
      [`echo 'a'"b"\\c "grüß 日本"`, "abc grüß 日本\n"],
      ["printf '%s' \"it's \\\\ \\$x\"", "it's \\ $x"],
    ],
  ],
  [
    "gives commands an empty stdin",
    [
      ["cat; read x; echo got $x", "got\n"],
      ["cat - | wc -c", "0\n"],
    ],
  ],
  [
    "does not show commands what it reads",
    [
      ["read -r x </proc/$$/fd/8 || echo none", "none\n"],
      ["ls /proc/self/fd | grep -c '[5-9]'", "0\n", 1],
    ],
  ],
  [
    "passes NUL bytes and a missing newline on",
    [
      ["printf 'a\\0b'", "a\0b"],
      ["printf 'no newline'", "no newline"],
      ["printf '\\n\\n'", "\n\n"],
    ],
  ],
  [
    "undoes what a command does to its streams",
    [
      ["exec >/dev/null 2>&1 </dev/zero", ""],
      ["echo x; cat", "x\n"],
      ["exec 1>&- 2>&- 0<&-", ""],
      ["echo y", "y\n"],
    ],
  ],
  [
    "is not misled by IFS, options and POSIXLY_CORRECT",
    [
      ["IFS=0123456789abcdef; POSIXLY_CORRECT=1; set -f -u -C", ""],
      ["(exit 213)", "", 213],
      ["echo fine", "fine\n"],
    ],
  ],
  [
    "is not misled by functions with its builtins' names",
    [
      ["printf() { :; }; echo_() { :; }; read() { :; }; test() { :; }; cd() { :; }; true() { false; }", ""],
      ["true", "", 1],
      ["command() { echo fake; }", ""],
      ["echo real", "real\n"],
      ["(exit 4)", "", 4],
    ],
  ],
  [
    "runs traps where commands write",
    [
      ["trap 'echo caught' USR1", ""],
      ["kill -USR1 $$; echo x", "caught\nx\n"],
    ],
  ],
  [
    "break and continue outside of a loop do nothing to it",
    [
      ["break; continue; echo x", "x\n"],
      ["echo y", "y\n"],
    ],
  ],
];

describe.each(Object.entries(testedShells))("a session of %s", (_name, driver) => {
  let fixture: SessionFixture;

  beforeAll(async () => {
    fixture = await startSessions({ driver });
  });

  afterAll(async () => {
    await fixture[Symbol.asyncDispose]();
  });

  test.for(rows)("%s", async ([sentence, steps]) => {
    const session = sentence.replaceAll(/[^a-z0-9]+/g, "-").slice(0, 60);
    for (const [command, stdout, code = 0] of steps) {
      const run = await fixture.run(command, { session });
      expect([command, run.stdout, run.exit.code]).toEqual([command, stdout, code]);
      expect(run.session).toEqual({ name: session, shell: "kept" });
    }
  });

  test("separates stdout and stderr", async () => {
    const run = await fixture.run("echo out; echo err >&2; printf o; printf e >&2");
    expect([run.stdout, run.stderr]).toEqual(["out\no", "err\ne"]);
    expect(run.exit).toMatchObject({ stdoutBytes: 5, stderrBytes: 5, timedOut: false });
  });

  test("shows a trace of commands only", async () => {
    const session = "trace";
    await fixture.run("set -x", { session });
    const traced = await fixture.run("echo x", { session });
    expect([traced.stdout, traced.stderr]).toMatchObject(["x\n", expect.stringMatching(/^\++ echo x\n$/)]);
  });

  test("sets variables for one command alone", async () => {
    const session = "env";
    await fixture.run("A=1; export B=2; unset C", { session });
    const env = { A: "it's ü\n'$x'", B: "", C: "c" };
    const during = await fixture.run(`echo "$A|$B|$C"; env | grep ^C=; (env | grep -c ^A=); A=8 C=9`, {
      session,
      env,
    });
    expect(during.stdout).toBe(`${env.A}||c\nC=c\n1\n`);
    const after = await fixture.run(`echo "$A|$B|\${C-unset}"; env | grep -c '^[AC]='`, { session });
    expect(after.stdout).toBe("1|2|unset\n0\n");
  });

  test("refuses a variable that no shell can have", async () => {
    await expect(fixture.run("true", { env: { "a.b": "" } })).rejects.toMatchObject({
      code: "invalid_argument",
    });
  });

  test("goes to a directory for one command alone", async () => {
    const session = "cwd";
    await fixture.run("cd /usr; cd /usr/share", { session });
    expect((await fixture.run("pwd; cd /etc; pwd", { session, cwd: "/usr/bin" })).stdout).toBe(
      "/usr/bin\n/etc\n",
    );
    expect((await fixture.run("pwd; cd - ", { session })).stdout).toBe("/usr/share\n/usr\n");
  });

  test("names a directory that is not there, and stays where it was", async () => {
    const session = "no-cwd";
    await fixture.run("cd /usr; set -e", { session });
    await expect(fixture.run("pwd", { session, cwd: "/no/such" })).rejects.toMatchObject({
      code: "no_such_cwd",
      details: { cwd: "/no/such" },
    });
    const run = await fixture.run("pwd", { session });
    expect([run.stdout, run.session.shell]).toEqual(["/usr\n", "kept"]);
  });

  test("takes a command of 120,000 characters", async () => {
    const text = "x".repeat(119_000);
    const run = await fixture.run(`printf %s '${text}' | wc -c`);
    expect(run.stdout.trim()).toBe("119000");
    const umlauts = "ü".repeat(30_000);
    expect((await fixture.run(`printf %s '${umlauts}'`)).stdout).toBe(umlauts);
  });

  test("does what it is told in any locale", async () => {
    const session = "locale";
    await fixture.run("export LC_ALL=C.UTF-8", { session });
    expect((await fixture.run("printf %s 日本", { session })).stdout).toBe("日本");
    expect((await fixture.run("export LC_ALL=C; printf %s ü", { session })).stdout).toBe("ü");
    expect((await fixture.run("printf '\\377\\200'", { session })).out).toEqual(Buffer.from([0xff, 0x80]));
  });

  test("leaves a command's processes no descriptor but 0 to 2", async () => {
    const run = await fixture.run("ls /proc/self/fd");
    // bash on the machine that tests run on may have inherited some; 8 and 9 are the driver's
    expect(run.stdout.split("\n")).not.toContain("8");
    expect(run.stdout.split("\n")).not.toContain("9");
  });
});
