/**
 * dsec with engine runc against Docker's own command line, in one run on one machine: creations, execs, memory, and what
 * the command line costs to start.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { setTimeout as settle } from "node:timers/promises";
import { promisify } from "node:util";
import { DSecClient, type Sandbox } from "../../src/sdk/index.ts";
import { startFleet } from "../e2e/fleet.ts";
import { setup as dockerForTests } from "../setup/dockerd.ts";
import { DockerPeer } from "./support/docker-peer.ts";
import { availableMemory, quantile, type Sample, sample } from "./support/measure.ts";
import { fixed, Report, times } from "./support/report.ts";

const image = "busybox";
const creationsPerLevel = 300;
const dockerCreationsPerLevel = 32;
const levels = [1, 4, 16] as const;
const idleSandboxes = 1000;
/** Until the kernel has taken down what was removed: network namespaces, control groups, subvolumes. */
const settleMs = 5000;
const cli = join(import.meta.dirname, "../../dist/bin/dsec.js");
const run = promisify(execFile);
const complain = (error: unknown): void => console.error("first failure:", error);

const report = new Report("Containers: dsec (engine runc) against docker");
const disposeDocker = await dockerForTests();
await using fleet = await startFleet();
await using client = await DSecClient.open({ address: fleet.address, token: fleet.token });
try {
  const docker = new DockerPeer(process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "", "dsec-test-busybox:latest");
  await creations(docker);
  await execs(docker);
  await memory();
  await startUp();
  await report.save("containers", "npm run bench -- containers");
} finally {
  await disposeDocker();
}

/** Create, then the first exec answered. */
async function creations(docker: DockerPeer): Promise<void> {
  const rows: string[][] = [];
  await warmUp();
  for (const concurrency of levels) {
    const made: Sandbox[] = [];
    const ours = await sample(
      creationsPerLevel,
      concurrency,
      async () => {
        const sandbox = await client.runContainer({ image, memoryMb: 512 });
        made.push(sandbox);
        const { exitCode } = await sandbox.exec(["true"]);
        if (exitCode !== 0) throw new Error(`true answered ${exitCode}`);
      },
      complain,
    );
    await removeAll(made);
    await settle(settleMs);
    const containers: string[] = [];
    const theirs = await sample(
      dockerCreationsPerLevel,
      concurrency,
      async () => {
        const id = await docker.run();
        containers.push(id);
        await docker.exec(id, "true");
      },
      complain,
    );
    await docker.remove(containers);
    await settle(settleMs);
    rows.push(row(`dsec, ${concurrency} at once`, ours, ours.perSecond / theirs.perSecond));
    rows.push(row(`docker, ${concurrency} at once`, theirs, 1));
  }
  report.table(
    "Create → first exec answered",
    ["", "per second", "p50 ms", "p99 ms", "succeeded", "rate ÷ docker's"],
    rows,
  );
}

/** A daemon at work for a while: its code is compiled. Docker's is compiled ahead. */
async function warmUp(): Promise<void> {
  const made: Sandbox[] = [];
  await sample(
    100,
    4,
    async () => {
      const sandbox = await client.runContainer({ image, memoryMb: 512 });
      made.push(sandbox);
      await sandbox.exec(["true"]);
    },
    complain,
  );
  await removeAll(made);
  await settle(settleMs);
}

function row(name: string, result: Sample, ratio: number): string[] {
  const succeeded = `${result.count - result.failed} of ${result.count}`;
  return [name, fixed(result.perSecond), fixed(result.p50), fixed(result.p99), succeeded, times(ratio)];
}

/** exec of `true` in a running sandbox, from the SDK's call to its answer. */
async function execs(docker: DockerPeer): Promise<void> {
  await using sandbox = await client.runContainer({ image });
  const exec = async (): Promise<void> => void (await sandbox.exec(["true"]));
  await sample(200, 1, exec);
  const ours = await sample(2000, 1, exec, complain);
  const container = await docker.run();
  const theirs = await sample(60, 1, async () => void (await docker.exec(container, "true")), complain);
  await docker.remove([container]);
  report.table(
    "exec of `true`",
    ["", "p50 ms", "p99 ms", "p50 as a part of docker's"],
    [
      ["dsec, SDK to SDK", fixed(ours.p50, 2), fixed(ours.p99, 2), `1/${fixed(theirs.p50 / ours.p50)}`],
      ["docker exec", fixed(theirs.p50, 2), fixed(theirs.p99, 2), "1"],
    ],
  );
}

/** What the whole machine has less while so many sandboxes idle, every process and the kernel counted. */
async function memory(): Promise<void> {
  await settle(settleMs);
  const before = availableMemory();
  const made: Sandbox[] = [];
  const result = await sample(
    idleSandboxes,
    4,
    async () => {
      made.push(await client.runContainer({ image, memoryMb: 64, ttlRunningStop: 0 }));
    },
    complain,
  );
  await settle(settleMs);
  const each = (before - availableMemory()) / made.length / 2 ** 20;
  report.table(
    "Memory of idle sandboxes",
    ["sandboxes", "creations per second", "whole-machine MiB each"],
    [[String(made.length), fixed(result.perSecond), fixed(each, 2)]],
  );
  await removeAll(made);
}

/** `dsec ls` of an empty fleet against the start of node itself. */
async function startUp(): Promise<void> {
  const wall = async (argv: string[]): Promise<number> => {
    const measured: number[] = [];
    for (let round = 0; round < 25; round++) {
      const start = performance.now();
      await run(process.execPath, argv, { env: { ...process.env, ...fleet.env } });
      measured.push(performance.now() - start);
    }
    return quantile(measured, 0.5);
  };
  await wall([cli, "ls"]);
  const ls = await wall([cli, "ls"]);
  const node = await wall(["-e", "0"]);
  report.table(
    "Command line",
    ["", "p50 ms", "÷ node -e 0"],
    [
      ["dsec ls", fixed(ls), times(ls / node)],
      ["node -e 0", fixed(node), times(1)],
    ],
  );
}

async function removeAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await sample(sandboxes.length, 8, async (index) => sandboxes[index]?.remove(), complain);
}
