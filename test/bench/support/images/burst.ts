import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { ContainerArgs } from "../../../../src/sdk/client.ts";
import { DSecClient } from "../../../../src/sdk/index.ts";
import type { Fleet } from "../../../e2e/fleet.ts";
import { type Sample, sample } from "../measure.ts";
import type { DiskWrites, NodeDisk } from "./node-disk.ts";
import type { ThrottledLink } from "./throttled-link.ts";

/** One sandbox: from what, and what is done in it before it ends. */
export interface Task {
  readonly name: string;
  readonly work: string;
}

export interface BurstResult {
  /** From the first request to the end of the last task. */
  readonly seconds: number;
  /** Bytes that came over the link. */
  readonly fetched: number;
  readonly writes: DiskWrites;
  /** From a task's request to its end, milliseconds. */
  readonly tasks: Sample;
}

export interface Burst {
  readonly tasks: readonly Task[];
  readonly atOnce: number;
  readonly link: ThrottledLink;
  readonly disk: NodeDisk;
}

/** What a task may take, on either side. */
const memoryMb = 1024;
/** Seconds. */
const taskTimeout = 1800;
const run = promisify(execFile);

/** Makes a sandbox for each task, does its work and removes it, so many at once. */
export async function burstOfSandboxes(
  burst: Burst,
  fleet: Fleet,
  specOf: (name: string) => Pick<ContainerArgs, "image" | "workspace" | "toolkits">,
): Promise<BurstResult> {
  await using client = await DSecClient.open({ address: fleet.address, token: fleet.token });
  return await measured(burst, async ({ name, work }) => {
    await using sandbox = await client.runContainer(
      { ...specOf(name), memoryMb, ttlRunningStop: 0 },
      { timeout: taskTimeout },
    );
    const { exitCode, stdout, stderr } = await sandbox.exec(["sh", "-euc", work], {
      timeoutMs: taskTimeout * 1000,
    });
    if (exitCode !== 0)
      throw new Error(`${name} failed with ${exitCode}: ${`${stdout}${stderr}`.slice(-2000)}`);
  });
}

/** The same by docker's command line, which pulls what is missing. */
export async function burstOfContainers(
  burst: Burst,
  socket: string,
  imageOf: (name: string) => string,
): Promise<BurstResult> {
  const env = { ...process.env, DOCKER_HOST: `unix://${socket}` };
  const flags = ["run", "--rm", "--network", "none", "--memory", `${memoryMb}m`];
  return measured(burst, async ({ name, work }) => {
    const argv = [...flags, imageOf(name), "sh", "-euc", work];
    await run("docker", argv, { env, maxBuffer: 2 ** 26, timeout: taskTimeout * 1000 });
  });
}

async function measured(
  { tasks, atOnce, link, disk }: Burst,
  doTask: (task: Task) => Promise<void>,
): Promise<BurstResult> {
  const fetchedBefore = link.receivedBytes();
  let failure: { readonly error: unknown } | undefined;
  const { result, writes } = await disk.watch(async () => {
    const began = performance.now();
    const done = await sample(
      tasks.length,
      atOnce,
      async (index) => {
        const task = tasks[index];
        if (task !== undefined) await doTask(task);
      },
      (error) => (failure ??= { error }),
    );
    return { done, seconds: (performance.now() - began) / 1000 };
  });
  // a burst that did not do its work has no time
  if (failure !== undefined) throw new Error("a task failed", { cause: failure.error });
  return {
    seconds: result.seconds,
    fetched: link.receivedBytes() - fetchedBefore,
    writes,
    tasks: result.done,
  };
}
