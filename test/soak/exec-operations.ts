import { expectBytes, expectEqual, expectRefusal, Mismatch, sha256 } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import type { World } from "./world.ts";

const signals = [
  ["HUP", 1],
  ["INT", 2],
  ["KILL", 9],
  ["USR1", 10],
  ["SEGV", 11],
  ["TERM", 15],
] as const;

async function argv({ sandbox, random }: World): Promise<void> {
  const words = Array.from({ length: random.between(1, 8) }, () => random.text());
  const result = await sandbox.exec(["printf", "%s|", ...words]);
  expectEqual("argv", [result.stdout, result.exitCode], [words.map((word) => `${word}|`).join(""), 0]);
}

async function exitCode({ sandbox, random }: World): Promise<void> {
  const code = random.int(256);
  const result = await sandbox.exec(["sh", "-c", `echo out; echo err >&2; exit ${code}`]);
  expectEqual(
    "an exit",
    [result.exitCode, result.cause, result.stdout, result.stderr],
    [code, "exited", "out\n", "err\n"],
  );
}

async function killed({ sandbox, random }: World): Promise<void> {
  const [name, number] = random.pick(signals);
  const result = await sandbox.exec(["sh", "-c", `kill -${name} $$`]);
  expectEqual("a signal", [result.exitCode, result.cause], [128 + number, "signaled"]);
}

async function stdin({ sandbox, random }: World): Promise<void> {
  const input = random.bytes(random.between(0, random.chance(0.1) ? 1_000_000 : 20_000));
  if (random.chance(0.5)) {
    expectBytes("stdin", (await sandbox.exec(["cat"], { stdin: input })).stdoutBytes, input);
    return;
  }
  const result = await sandbox.exec(["sha256sum"], { stdin: input });
  expectEqual("stdin", result.stdout, `${sha256(input)}  -\n`);
}

async function output({ sandbox, random }: World): Promise<void> {
  const length = random.between(0, random.chance(0.2) ? 4_000_000 : 100_000);
  const script = `head -c ${length} /dev/zero | tr '\\0' x`;
  const result = await sandbox.exec(["sh", "-c", script]);
  expectBytes("a long output", result.stdoutBytes, Buffer.alloc(length, "x"));
}

async function tooMuch({ sandbox }: World): Promise<void> {
  await expectRefusal(
    "endless output",
    sandbox.exec(["yes"], { maxOutputBytes: 100_000 }),
    "output_too_large",
  );
}

async function timeOut({ sandbox }: World): Promise<void> {
  const result = await sandbox.exec(["sh", "-c", "echo begun; sleep 1000"], { timeoutMs: 1500 });
  expectEqual(
    "a timeout",
    [result.stdout, result.exitCode, result.cause, result.timedOut],
    ["begun\n", 124, "timeout", true],
  );
}

async function surroundings({ sandbox, random }: World): Promise<void> {
  const value = random.text();
  const script = `id -u; id -g; pwd; printf %s "$VALUE"`;
  const result = await sandbox.exec(["sh", "-c", script], {
    user: "1000:100",
    cwd: "/bin",
    env: { VALUE: value },
  });
  expectEqual("surroundings", result.stdout, `1000\n100\n/bin\n${value}`);
}

async function refused({ sandbox }: World): Promise<void> {
  await expectRefusal("no command", sandbox.exec(["nosuchcommand"]), "command_not_found");
  await expectRefusal("no program", sandbox.exec(["/etc"]), "command_not_executable");
  await expectRefusal("no directory", sandbox.exec(["true"], { cwd: "/no/such" }), "no_such_cwd");
  await expectRefusal("no user", sandbox.exec(["true"], { user: "nobody-at-all" }), "no_such_user");
}

/** A dialogue over pipes, then a signal that the command answers. */
async function stream({ sandbox, random }: World): Promise<void> {
  const script = `trap 'echo caught; exit 5' TERM; while read -r line; do echo "<$line>"; done; sleep 1000 & wait`;
  await using process = await sandbox.spawn(["sh", "-c", script], { stdin: true });
  let read = "";
  const chunks = process.stdout[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const until = async (wanted: string): Promise<void> => {
    while (!read.endsWith(wanted)) {
      const { value, done } = await chunks.next();
      if (done === true) throw new Mismatch(`a dialogue ended after ${JSON.stringify(read)}`);
      read += String(value);
    }
  };
  for (let turn = random.between(1, 4); turn > 0; turn--) {
    const line = `l${random.int(100_000)}`;
    process.stdin.write(`${line}\n`);
    await until(`<${line}>\n`);
  }
  process.signal("SIGTERM");
  process.stdin.end();
  await until("caught\n");
  expectEqual("a signal that is answered", (await process.exit).exitCode, 5);
}

async function terminal({ sandbox, random }: World): Promise<void> {
  const [rows, cols] = [random.between(2, 200), random.between(2, 300)];
  const script = "stty size; read _; stty size";
  await using process = await sandbox.spawn(["sh", "-c", script], {
    stdin: true,
    tty: { rows: 24, cols: 80 },
  });
  let read = "";
  for await (const chunk of process.stdout as AsyncIterable<Buffer>) {
    if (read === "") {
      process.resize(rows, cols);
      process.stdin.write("\r");
    }
    read += String(chunk);
  }
  const { exitCode: code } = await process.exit;
  expectEqual("a terminal", [read.replaceAll("\r", ""), code], [`24 80\n\n${rows} ${cols}\n`, 0]);
}

/** Both whoever goes away and whoever cuts the call take the command along. */
async function abandoned(world: World): Promise<void> {
  const { sandbox, random } = world;
  const mark = `${100_000 + ++world.serial}`;
  if (random.chance(0.5)) {
    const process = await sandbox.spawn(["sleep", mark]);
    process.disconnect();
  } else {
    const abort = new AbortController();
    const script = ["sh", "-c", `echo begun; exec sleep ${mark}`];
    const call = sandbox.exec(script, { signal: abort.signal, onStdout: () => abort.abort() });
    await expectRefusal("a call that was cut", call, "cancelled");
  }
  const gone = await sandbox.exec(
    ["sh", "-c", `while ps -o args | grep -q '[s]leep ${mark}'; do usleep 20000; done`],
    {
      timeoutMs: 20_000,
    },
  );
  expectEqual("a command whose client went away is gone", gone.exitCode, 0);
}

async function detached({ sandbox, random }: World): Promise<void> {
  const code = random.int(256);
  const count = random.between(1, 2000);
  const exec = await sandbox.execDetached(["sh", "-c", `seq 1 ${count}; echo err >&2; exit ${code}`]);
  const streams = { stdout: "", stderr: "" };
  let ended: number | undefined;
  for await (const line of sandbox.logs({ exec, follow: true })) {
    if (line.type === "output") streams[line.stream] += Buffer.from(line.data, "base64").toString();
    else if (line.type === "end") ended = line.exit?.exitCode;
  }
  const stdout = Array.from({ length: count }, (_, n) => `${n + 1}\n`).join("");
  expectBytes("recorded output", Buffer.from(streams.stdout), Buffer.from(stdout));
  expectEqual("a recorded end", [streams.stderr, ended], ["err\n", code]);
}

/** Detached with an open stdin, then taken up by one client after the other. */
async function attached({ sandbox, random }: World): Promise<void> {
  const exec = await sandbox.execDetached(
    ["sh", "-c", 'echo ready; read -r a; echo "1 $a"; read -r b; echo "2 $b"'],
    {
      stdin: true,
    },
  );
  const words = [`a${random.int(1000)}`, `b${random.int(1000)}`];
  const answers = ["ready\n", `1 ${words[0]}\n`, `2 ${words[1]}\n`];
  for (const [turn, word] of words.entries()) {
    await using process = await sandbox.attach(exec, { stdin: true, from: "start" });
    process.stdin.write(`${word}\n`);
    const wanted = answers.slice(0, turn + 2).join("");
    let read = "";
    for await (const chunk of process.stdout as AsyncIterable<Buffer>) {
      read += String(chunk);
      if (read.length >= wanted.length) break;
    }
    expectEqual("what an attachment sees", read, wanted);
  }
  const ended = await sandbox.attach(exec, { from: "start" });
  ended.stdout.resume();
  expectEqual("the end, attached", (await ended.exit).exitCode, 0);
}

export const execOperations: readonly Operation[] = [
  { name: "exec: argv", weight: 8, run: argv },
  { name: "exec: exit code and both streams", weight: 6, run: exitCode },
  { name: "exec: killed by a signal", weight: 3, run: killed },
  { name: "exec: stdin", weight: 6, run: stdin },
  { name: "exec: long output", weight: 3, run: output },
  { name: "exec: more output than may be collected", weight: 1, run: tooMuch },
  { name: "exec: timeout", weight: 1, run: timeOut },
  { name: "exec: user, directory, environment", weight: 4, run: surroundings },
  { name: "exec: refusals", weight: 2, run: refused },
  { name: "exec: dialogue and signal", weight: 3, run: stream },
  { name: "exec: terminal and resize", weight: 3, run: terminal },
  { name: "exec: client goes away", weight: 2, run: abandoned },
  { name: "exec: detached, recorded", weight: 3, run: detached },
  { name: "exec: attached in turns", weight: 2, run: attached },
];
