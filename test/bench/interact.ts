/**
 * What is done inside a sandbox, against Docker's own command line in one run on one machine: session commands, bulk output, many
 * sessions at once, files.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Sandbox } from "../../src/sdk/index.ts";
import { startFleet } from "../e2e/fleet.ts";
import { setup as dockerForTests } from "../setup/dockerd.ts";
import { DockerPeer } from "./support/docker-peer.ts";
import { benchFiles } from "./support/files-part.ts";
import { benchMemory } from "./support/memory-part.ts";
import { quantile, sample } from "./support/measure.ts";
import { fixed, Report, times } from "./support/report.ts";

const image = "busybox";
const cli = join(import.meta.dirname, "../../dist/bin/dsec.js");
const gibibyte = 2 ** 30;
const parallelSessions = 200;
const commandsPerSession = 50;

const report = new Report("Inside a sandbox: dsec (engine runc) against docker");
const disposeDocker = await dockerForTests();
await using fleet = await startFleet();
await using client = await fleet.client();
const docker = new DockerPeer(process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "", "dsec-test-busybox:latest");
const sandbox = await client.runContainer({ image, memoryMb: 2048, diskMb: 8192 });
const container = await docker.run();
try {
  await shells();
  await bulkOutput();
  await manySessions();
  await benchFiles(report, fleet, docker);
  await benchMemory(report, fleet);
  await report.save("interact", "npm run bench -- interact");
} finally {
  await docker.remove([container]);
  await disposeDocker();
}

/** `true` in a warm session, against `docker exec`, and against the least a shell can cost: a pipe to it on this machine. */
async function shells(): Promise<void> {
  const call = async (): Promise<void> => {
    const { exitCode } = await sandbox.runShell("true");
    if (exitCode !== 0) throw new Error(`true answered ${exitCode}`);
  };
  await sample(200, 1, call);
  const ours = await sample(2000, 1, call);
  const theirs = await sample(60, 1, async () => void (await docker.exec(container, "sh", "-c", "true")));
  const pipe = await rawPipe(2000);
  report.table(
    '`runShell("true")`, warm session',
    ["", "p50 ms", "p99 ms", "÷ docker exec", "÷ raw pipe"],
    [
      [
        "dsec, SDK to SDK",
        fixed(ours.p50, 2),
        fixed(ours.p99, 2),
        `1/${fixed(theirs.p50 / ours.p50)}`,
        times(ours.p50 / pipe.p50),
      ],
      [
        "docker exec sh -c true",
        fixed(theirs.p50, 2),
        fixed(theirs.p99, 2),
        "1",
        times(theirs.p50 / pipe.p50),
      ],
      ["raw pipe to sh", fixed(pipe.p50, 3), fixed(pipe.p99, 3), `1/${fixed(theirs.p50 / pipe.p50)}`, "1"],
    ],
  );
}

async function rawPipe(count: number): Promise<{ p50: number; p99: number }> {
  const shell = spawn("sh", [], { stdio: ["pipe", "pipe", "ignore"] });
  const lines = createInterface({ input: shell.stdout })[Symbol.asyncIterator]();
  const measured: number[] = [];
  for (let round = 0; round < count; round++) {
    const start = performance.now();
    shell.stdin.write("true; echo $?\n");
    await lines.next();
    measured.push(performance.now() - start);
  }
  shell.stdin.end();
  return { p50: quantile(measured, 0.5), p99: quantile(measured, 0.99) };
}

/** 1 GiB of stdout through both command lines. */
async function bulkOutput(): Promise<void> {
  const argv = ["head", "-c", String(gibibyte), "/dev/zero"];
  const ours = await drained(process.execPath, [cli, "exec", sandbox.id, "--", ...argv], fleet.env);
  const theirs = await drained("docker", ["exec", container, ...argv], docker.env);
  report.table(
    "1 GiB of stdout through the command line",
    ["", "MiB/s", "÷ docker exec"],
    [
      ["dsec exec", fixed(1024 / ours, 0), times(theirs / ours)],
      ["docker exec", fixed(1024 / theirs, 0), "1×"],
    ],
  );
}

/** Seconds until all of it was read. */
async function drained(program: string, argv: readonly string[], env: NodeJS.ProcessEnv): Promise<number> {
  const start = performance.now();
  const child = spawn(program, argv, {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  let bytes = 0;
  child.stdout.on("data", (chunk: Buffer) => (bytes += chunk.length));
  await once(child, "close");
  if (bytes !== gibibyte) throw new Error(`${program} gave ${bytes} bytes of ${gibibyte}`);
  return (performance.now() - start) / 1000;
}

async function manySessions(): Promise<void> {
  const commands = Array.from({ length: parallelSessions * commandsPerSession }, (_, index) => index);
  const session = (index: number): string => `s${index % parallelSessions}`;
  const warm = await sample(parallelSessions, 16, async (index) =>
    expectOutput(sandbox, session(index), index),
  );
  const result = await sample(commands.length, parallelSessions, async (index) =>
    expectOutput(sandbox, session(index), index),
  );
  report.table(
    `${parallelSessions} sessions × ${commandsPerSession} commands, all at once`,
    ["commands", "errors", "per second", "p50 ms", "p99 ms"],
    [
      [
        String(result.count),
        String(result.failed + warm.failed),
        fixed(result.perSecond, 0),
        fixed(result.p50),
        fixed(result.p99),
      ],
    ],
  );
}

async function expectOutput(target: Sandbox, session: string, index: number): Promise<void> {
  const { stdout } = await target.runShell(`echo ${index}`, { session });
  if (stdout !== `${index}\n`) throw new Error(`session ${session} answered ${JSON.stringify(stdout)}`);
}
