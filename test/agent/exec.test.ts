import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { run, type RunningAgent, sh, shareAgent, start } from "./agent-fixture.ts";

let agent: RunningAgent;
let connection: AgentConnection;

shareAgent((...made) => {
  [agent, connection] = made;
});

describe("a command", () => {
  test("gets exactly the argv that was given, empty and spaced arguments included", async () => {
    const argv = ["a", "b c", "", "'\"$HOME`", "ä\n", "-"];
    const result = await run(connection, [...sh('printf "%s\\0" "$@"'), "sh", ...argv]);
    expect(result.stdout.toString()).toBe(argv.map((argument) => `${argument}\0`).join(""));
  });

  test("gets the environment that was given, and PATH, HOME and USER where they were not", async () => {
    const bare = await run(connection, ["/usr/bin/env"], { env: { A: "x=y", EMPTY: "" } });
    const lines = bare.stdout.toString().trimEnd().split("\n");
    expect(lines).toContain("A=x=y");
    expect(lines).toContain("EMPTY=");
    expect(lines.map((line) => line.split("=")[0]).sort()).toEqual(["A", "EMPTY", "HOME", "PATH", "USER"]);
    const given = { PATH: "/usr/bin", HOME: "/h", USER: "u" };
    const full = await run(connection, ["env"], { env: given });
    expect(full.stdout.toString().trimEnd().split("\n").sort()).toEqual([
      "HOME=/h",
      "PATH=/usr/bin",
      "USER=u",
    ]);
  });

  test("keeps stdout and stderr apart", async () => {
    const result = await run(connection, sh("echo out; echo err >&2; echo out2"));
    expect(result.stdout.toString()).toBe("out\nout2\n");
    expect(result.stderr.toString()).toBe("err\n");
    expect([result.stdoutBytes, result.stderrBytes]).toEqual([9, 4]);
  });

  test("has no descriptor but its three streams, whatever else runs", async () => {
    const busy = await start(connection, ["sleep", "1000"], { stdin: true });
    const result = await run(connection, sh("ls /proc/self/fd"));
    expect(result.stdout.toString().trim().split("\n")).toEqual(["0", "1", "2", "3"]);
    busy.exec.release();
  });

  test("starts with signals, mask, umask, limits and process group of its own", async () => {
    const script =
      "grep -E '^Sig(Blk|Ign)|^Umask' /proc/self/status; cut -d' ' -f1,5,6 /proc/$$/stat; ulimit -n";
    const { exec, output } = await start(connection, sh(script));
    await exec.exit;
    const lines = output.stdout.toString().trim().split("\n");
    expect(lines[0]).toMatch(/^Umask:\s+0022$/);
    for (const line of lines.slice(1, 3)) expect(line).toMatch(/:\s+0+$/);
    expect(lines[3]).toBe(`${exec.pid} ${exec.pid} ${exec.pid}`);
    expect(lines[4]).toBe(/open files +(\d+)/.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
    exec.release();
  });

  test("finds an stdin that nobody writes to at its end", async () => {
    const result = await run(connection, ["cat"]);
    expect(result).toMatchObject({ code: 0, stdoutBytes: 0 });
  });

  test("reads what is written to stdin until it is ended", async () => {
    const { exec, output } = await start(connection, ["cat"], { stdin: true });
    await exec.write(Buffer.from("first "));
    await output.seen("first ");
    await exec.write(Buffer.from("second"));
    exec.end();
    expect(await exec.exit).toMatchObject({ code: 0, stdoutBytes: 12 });
    expect(output.stdout.toString()).toBe("first second");
    exec.release();
  });

  test("that ended takes further writes without an error", async () => {
    const { exec } = await start(connection, ["true"], { stdin: true });
    await exec.write(Buffer.alloc(1_000_000));
    await exec.exit;
    await exec.write(Buffer.alloc(1_000_000));
    exec.signal(9, "tree");
    exec.release();
    expect((await run(connection, ["true"])).code).toBe(0);
  });

  test("runs in the given directory, as the given user", async () => {
    const result = await run(connection, sh("pwd; id -un; echo $HOME $USER"), {
      cwd: "/tmp",
      user: "nobody",
    });
    expect(result.stdout.toString()).toBe("/tmp\nnobody\n/nonexistent nobody\n");
  });

  test.for([
    ["nobody:daemon", "65534 1 1"],
    ["12345", "12345 0 0"],
    ["12345:54321", "12345 54321 54321"],
    ["0:0", "0 0 0"],
    ["root", "0 0 0"],
  ] as const)("as user %s has the ids %s", async ([user, ids]) => {
    const result = await run(connection, sh("echo $(id -u) $(id -g) $(id -G)"), { user });
    expect(result.stdout.toString().trim()).toBe(ids);
  });
});

describe("a command that cannot be started gives a typed error that names it", () => {
  test.for([
    [["no-such-command"], {}, "command_not_found", "no-such-command"],
    [["/no/such/command"], {}, "command_not_found", "/no/such/command"],
    [["/etc/passwd/x"], {}, "command_not_found", "/etc/passwd/x"],
    [[""], {}, "command_not_found", '""'],
    [["/etc/passwd"], {}, "command_not_executable", "/etc/passwd"],
    [["/etc"], {}, "command_not_executable", "/etc"],
    [["true"], { cwd: "/no/such/directory" }, "no_such_cwd", "/no/such/directory"],
    [["true"], { cwd: "/etc/passwd" }, "no_such_cwd", "/etc/passwd"],
    [["true"], { cwd: "/root", user: "nobody" }, "no_such_cwd", "/root"],
    [["true"], { user: "no-such-user" }, "no_such_user", "no-such-user"],
    [["true"], { user: "root:no-such-group" }, "no_such_user", "no-such-group"],
    [["true"], { user: "4294967295" }, "no_such_user", "4294967295"],
    [[], {}, "invalid_argument", "empty"],
    [["a\0b"], {}, "invalid_argument", "zero byte"],
    [["true"], { cwd: "relative" }, "invalid_argument", "relative"],
    [["true"], { env: { "A=B": "c" } }, "invalid_argument", "A=B"],
    [["true", "x".repeat(300_000)], {}, "invalid_argument", "256 KiB"],
  ] as const)("%j %j: %s", async ([argv, spec, code, named]) => {
    const error = await run(connection, [...argv], spec).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code, ambiguous: false, message: expect.stringContaining(named) });
  });

  test("a script whose interpreter is missing, and one in no known format", async () => {
    const script = `${agent.directory}/script`;
    await run(connection, sh(`printf '#!/no/such/interpreter\\n' > ${script}; chmod 755 ${script}`));
    await expect(run(connection, [script])).rejects.toMatchObject({ code: "command_not_executable" });
    await run(connection, sh(`printf 'echo x' > ${script}`));
    await expect(run(connection, [script])).rejects.toMatchObject({
      code: "command_not_executable",
      details: { errno: "ENOEXEC" },
    });
  });

  test("leaves nothing running and no channel behind", async () => {
    const again = await agent.connect();
    expect(again.live.filter(({ state }) => state === "running")).toEqual([]);
    connection = again;
  });
});

describe("the exit code", () => {
  test("is the command's own, 0 to 255", async () => {
    const codes = Array.from({ length: 256 }, (_, code) => code);
    const exits = await Promise.all(codes.map((code) => run(connection, sh(`exit ${code}`))));
    expect(exits.map(({ code }) => code)).toEqual(codes);
    expect(exits.every(({ signal, timedOut }) => signal === undefined && !timedOut)).toBe(true);
  });

  test.for([1, 2, 3, 6, 9, 13, 14, 15, 31, 34, 64])(
    "is 128 + %d when that signal ended it",
    async (signal) => {
      const { exec } = await start(connection, ["sleep", "1000"]);
      exec.signal(signal, "process");
      expect(await exec.exit).toMatchObject({ code: 128 + signal, signal, timedOut: false });
      exec.release();
    },
  );
});

test("200 execs at once each get their own output and code", async () => {
  const results = await Promise.all(
    Array.from({ length: 200 }, (_, i) =>
      run(connection, sh(`i=0; while [ $i -lt 100 ]; do echo ${i}; i=$((i+1)); done; exit ${i}`)),
    ),
  );
  for (const [i, result] of results.entries()) {
    expect(result.code).toBe(i);
    expect(result.stdout.toString()).toBe(`${i}\n`.repeat(100));
  }
});

test("a released channel's number is not taken again", async () => {
  const first = await start(connection, ["true"]);
  await first.exec.exit;
  first.exec.release();
  const again = await agent.connect();
  const second = await start(again, ["true"]);
  expect(second.exec.channel).toBeGreaterThan(first.exec.channel);
  await second.exec.exit;
  second.exec.release();
  connection = again;
});
