import { execFile, execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test, vi } from "vitest";
import { agentBinaryPath } from "../../src/agent/agent-binary.ts";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { type AgentLaunch, run, sh, start, startAgent } from "./agent-fixture.ts";
import { inParts } from "../protocol/tar-fixture.ts";
import { childrenOf, memoryOf } from "./process-state.ts";

const execute = promisify(execFile);
const source = fileURLToPath(new URL("../../src/agent", import.meta.url));
const built = fileURLToPath(new URL("../../dist/agent-test", import.meta.url));
const MUTATED_FRAMES = 1_000_000;
/** Bytes of the longest name there is. */
const LONGEST_NAME = 255;

/** A little of everything. */
async function session(connection: AgentConnection, directory: string): Promise<void> {
  const { files } = connection;
  await Promise.all(
    Array.from({ length: 20 }, () => run(connection, sh("head -c 200000 /dev/zero; echo x >&2"))),
  );
  expect((await run(connection, sh("sleep 1000 & sleep 1000"), { timeoutMs: 50 })).timedOut).toBe(true);
  expect((await run(connection, ["stty", "size"], { tty: { rows: 5, cols: 6 } })).stdout.toString()).toBe(
    "5 6\r\n",
  );
  await expect(run(connection, ["no-such-command"])).rejects.toMatchObject({ code: "command_not_found" });
  await expect(run(connection, ["true"], { user: "nobody:x" })).rejects.toMatchObject({
    code: "no_such_user",
  });
  await expect(run(connection, ["true"], { cwd: "/x/y" })).rejects.toMatchObject({ code: "no_such_cwd" });
  const cat = await start(connection, ["cat"], { stdin: true });
  await cat.exec.write(Buffer.alloc(300_000));
  cat.exec.end();
  expect((await cat.exec.exit).stdoutBytes).toBe(300_000);
  cat.exec.release();
  const left = await start(connection, sh("sleep 1000 & echo; sleep 1000"));
  await left.output.seen("\n");
  left.exec.release();

  mkdirSync(`${directory}/d`);
  const content = async function* () {
    yield Buffer.alloc(200_000, "x");
  };
  await files.write(`${directory}/d/f`, content(), { mode: 0o600, size: 200_000 });
  await expect(files.write(`${directory}/d/g`, content(), { size: 1 })).rejects.toMatchObject({
    code: "file_error",
  });
  await files.read(`${directory}/d/f`, {}, () => {});
  await files.mkdir(`${directory}/d/a/b/c`, { parents: true });
  await files.rename(`${directory}/d/f`, `${directory}/d/a/f`);
  expect((await files.list(`${directory}/d`)).length).toBe(1);
  await files.stat(`${directory}/d/a/f`, { followSymlink: true });
  const archived: Buffer[] = [];
  const asTree = { name: Buffer.from("tree"), followSymlink: false };
  await files.archive(`${directory}/d`, asTree, (chunk) => void archived.push(Buffer.from(chunk)));
  await files.extract(`${directory}/d`, inParts(Buffer.concat(archived)), { owners: true });
  await files.remove(`${directory}/d`, { recursive: true });
  await expect(files.list(`${directory}/d`)).rejects.toMatchObject({ code: "file_error" });

  const echo = createServer((socket) => void socket.pipe(socket)).listen(0, "127.0.0.1");
  await once(echo, "listening");
  const address = echo.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const stream = await connection.dial(address.port);
  stream.end(Buffer.alloc(300_000));
  let length = 0;
  for await (const chunk of stream) length += (chunk as Buffer).length;
  expect(length).toBe(300_000);
  echo.close();
  await expect(connection.dial(1)).rejects.toMatchObject({ code: "port_refused" });
}

async function runSession(launch: AgentLaunch): Promise<void> {
  await using agent = await startAgent(launch);
  let connection = await agent.connect();
  await session(connection, agent.directory);
  // A connection that drops with one of each under way.
  await start(connection, ["yes"]);
  await start(connection, sh("cat"), { stdin: true });
  connection.close();
  connection = await agent.connect();
  expect(connection.live.length).toBe(2);
  await session(connection, agent.directory);
  for (const { channel } of connection.live) {
    const exec = await connection.resume(channel, { stdout: 0, stderr: 0 }, () => {});
    exec.release();
  }
  await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), { timeout: 30_000, interval: 20 });
}

describe("the agent", () => {
  test("survives a million mutated frames under the sanitizers, with memory that fails now and then", async () => {
    await execute("make", ["-C", source, "fuzz"]);
    const seed = String(randomInt(2 ** 31));
    const { stdout } = await execute(`${built}/fuzz`, [String(MUTATED_FRAMES), seed]).catch(
      (error: unknown) => {
        throw new Error(`fuzz ${MUTATED_FRAMES} ${seed} failed`, { cause: error });
      },
    );
    expect(stdout).toContain(`seed ${seed}\n`);
    expect(Number(/, (\d+) mutated/.exec(stdout)?.[1])).toBeGreaterThanOrEqual(MUTATED_FRAMES);
    // Each kind of answer came, so the sessions got somewhere.
    const answers = [...stdout.matchAll(/^(\d+) answers/gm)].map(([, count]) => Number(count));
    expect(answers.length).toBe(8);
    expect(Math.min(...answers)).toBeGreaterThan(1000);
  }, 300_000);

  test("serves a session under the address and undefined-behaviour sanitizers", async () => {
    await execute("make", ["-C", source, "asan"]);
    await expect(runSession({ binary: `${built}/dsec-agent-asan` })).resolves.toBeUndefined();
  }, 120_000);

  test("refuses names that fill an archive's longest path to the last byte, under the sanitizers", async () => {
    await execute("make", ["-C", source, "asan"]);
    await using agent = await startAgent({ binary: `${built}/dsec-agent-asan` });
    const { files } = await agent.connect();
    const tree = `${agent.directory}/d`;
    mkdirSync(tree);
    const deeper = `for (1..256) { mkdir("n" x ${LONGEST_NAME}); chdir("n" x ${LONGEST_NAME}) or die }`;
    execFileSync("perl", ["-e", deeper], { cwd: tree });
    const options = { name: Buffer.from("n".repeat(LONGEST_NAME)), followSymlink: false };
    await expect(files.archive(tree, options, () => {})).rejects.toMatchObject({
      details: { errno: "ENAMETOOLONG" },
    });
    await files.remove(tree, { recursive: true });
  }, 120_000);

  test("keeps a file's two names when both are very long, under the sanitizers", async () => {
    await execute("make", ["-C", source, "asan"]);
    await using agent = await startAgent({ binary: `${built}/dsec-agent-asan` });
    const { files } = await agent.connect();
    const [from, to] = [`${agent.directory}/from`, `${agent.directory}/to`];
    mkdirSync(from);
    mkdirSync(to);
    const depth = 200;
    const deeper = `for (1..${depth}) { mkdir("n" x ${LONGEST_NAME}); chdir("n" x ${LONGEST_NAME}) or die }`;
    execFileSync("perl", ["-e", `${deeper} open(my $f, ">", "one"); link("one", "two") or die`], {
      cwd: from,
    });
    const parts: Buffer[] = [];
    const asTree = { name: Buffer.from("tree"), followSymlink: false };
    await files.archive(from, asTree, (chunk) => void parts.push(Buffer.from(chunk)));
    const taken = await files.extract(to, inParts(Buffer.concat(parts)), { owners: true });
    expect(taken.entries).toBe(1 + depth + 2);
    expect(execFileSync("find", [to, "-type", "f", "-links", "2", "-printf", "%f\n"]).toString()).toMatch(
      /^(one\ntwo|two\none)\n$/,
    );
    for (const tree of [from, to]) await files.remove(tree, { recursive: true });
  }, 120_000);

  test.skipIf(!existsSync("/usr/bin/valgrind"))(
    "serves a session under valgrind",
    async () => {
      const log = `${built}/valgrind.log`;
      const flags = [
        "--error-exitcode=99",
        "--exit-on-first-error=yes",
        `--log-file=${log}`,
        "--child-silent-after-fork=yes",
      ];
      await execute("make", ["-C", source, "plain"]);
      await expect(
        runSession({ prefix: ["valgrind", "-q", ...flags], binary: `${built}/dsec-agent-plain` }),
      ).resolves.toBeUndefined();
      // It also warns of system calls that are newer than itself.
      expect(readFileSync(log, "utf8")).not.toMatch(
        /Invalid|uninitialised|Syscall param|overlap|Mismatched|terminating/,
      );
    },
    120_000,
  );

  test("is small: on disk, and in memory when idle", async () => {
    expect(statSync(agentBinaryPath()).size).toBeLessThan(150_000);
    await using agent = await startAgent();
    const connection = await agent.connect();
    await Promise.all(Array.from({ length: 50 }, () => run(connection, sh("head -c 300000 /dev/zero"))));
    await vi.waitFor(() => expect(memoryOf(agent.pid, "Private_Dirty")).toBeLessThan(100_000), {
      timeout: 20_000,
      interval: 50,
    });
  });

  test("is linked statically and needs no libraries", () => {
    const elf = readFileSync(agentBinaryPath());
    const headersAt = Number(elf.readBigUInt64LE(32));
    const types = Array.from({ length: elf.readUInt16LE(56) }, (_, index) =>
      elf.readUInt32LE(headersAt + index * elf.readUInt16LE(54)),
    );
    const [load, dynamicLinker] = [1, 3];
    expect(types).toContain(load);
    expect(types).not.toContain(dynamicLinker);
  });
});
