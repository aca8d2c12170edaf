import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "../e2e/fleet.ts";
import { sandboxLeftovers } from "../e2e/leftovers.ts";
import { cliOperations } from "./cli-operations.ts";
import { execOperations } from "./exec-operations.ts";
import { fileOperations } from "./file-operations.ts";
import { httpOperations } from "./http-operations.ts";
import { lifecycleOperations } from "./lifecycle-operations.ts";
import { nameOperations } from "./name-operations.ts";
import type { Operation } from "./operation.ts";
import { portOperations } from "./port-operations.ts";
import { Random } from "./random.ts";
import { type Sample, takeSample } from "./sampler.ts";
import { sessionOperations } from "./session-operations.ts";
import { judge, judgeRest, type Verdict } from "./stability.ts";
import { treeOperations } from "./tree-operations.ts";
import { makeWorld, replaceSandbox, type World } from "./world.ts";

export interface SoakOptions {
  readonly sandboxes: number;
  /** Whether some of them are of the engine docker, whose socket is in DSEC_TEST_DOCKER_SOCKET. */
  readonly docker: boolean;
  readonly milliseconds: number;
  /** Together with a sandbox's number it decides what happens there. */
  readonly seed: number;
  /** Operations at a time. */
  readonly concurrency: number;
  /** Growth from the middle third to the last that is still called stable: 0.1 is 10 %, besides a floor. */
  readonly tolerance: number;
  readonly sampleMs: number;
  /** At most so long what is tidied up behind an answer, or kept for the next, may take: pooled connections half a minute. */
  readonly settleMs: number;
  /** Told of each mismatch as it comes. */
  readonly onMismatch?: (record: MismatchRecord) => void;
}

/** Every so many sandboxes one is of the engine docker, alternately one that stays and one that does not. */
const dockerEvery = 5;

/** Where to find it again: seed, sandbox and step decide everything that came before. */
export interface MismatchRecord {
  readonly seed: number;
  readonly sandbox: number;
  readonly step: number;
  readonly operation: string;
  readonly problem: string;
}

export interface SoakResult {
  readonly options: SoakOptions;
  readonly milliseconds: number;
  /** How often each was done, and how long it took: milliseconds. */
  readonly operations: ReadonlyMap<string, readonly number[]>;
  readonly mismatches: readonly MismatchRecord[];
  readonly samples: readonly Sample[];
  readonly verdicts: readonly Verdict[];
  /** What was still there when all sandboxes had been removed. */
  readonly leftovers: readonly string[];
  /** Open files of the fleet's process: when the first sandbox ran, and when all were gone. */
  readonly files: { readonly before: number; readonly after: number };
}

export const operations: readonly Operation[] = [
  ...sessionOperations,
  ...execOperations,
  ...fileOperations,
  ...treeOperations,
  ...nameOperations,
  ...portOperations,
  ...httpOperations,
  ...cliOperations,
  ...lifecycleOperations,
];

/** Does random things in sandboxes of a fleet of its own until its time is up. Mismatches are recorded, not thrown. */
export async function runSoak(options: SoakOptions): Promise<SoakResult> {
  await using fleet = await startFleet();
  await using client = await fleet.client();
  const first = await client.runContainer({ image: "busybox", engine: "runc" });
  await first.remove();
  const before = (await takeSample(fleet, 0)).fleetFiles;
  const worlds: World[] = [];
  for (let number = 0; number < options.sandboxes; number++)
    worlds.push(
      await makeWorld({
        client,
        dsec: async (argv, given) => fleet.dsec(argv, given),
        engine: options.docker && number % dockerEvery === 1 ? "docker" : "runc",
        random: new Random(options.seed * 1_000_003 + number),
        stays: number % 2 === 0,
      }),
    );
  const restBefore = await atRest(fleet);
  const began = performance.now();
  const state: State = { options, turns: new Turns(options.concurrency), times: new Map(), mismatches: [] };
  const over = AbortSignal.timeout(options.milliseconds);
  const sampling = sampleUntil(over, fleet, began, options.sampleMs);
  await Promise.all(worlds.map(async (world, number) => live(world, number, state, over)));
  const samples = await sampling;
  const milliseconds = performance.now() - began;
  const restAfter = await atRest(fleet);
  for (const { sandbox } of worlds) await sandbox.remove();
  const { leftovers, after } = await settle(fleet, before, options.settleMs);
  return {
    options,
    milliseconds,
    operations: state.times,
    mismatches: state.mismatches,
    samples,
    verdicts: [...judge(samples, options.tolerance), ...judgeRest(restBefore, restAfter, options.tolerance)],
    leftovers,
    files: { before, after },
  };
}

interface State {
  readonly options: SoakOptions;
  readonly turns: Turns;
  readonly times: Map<string, number[]>;
  readonly mismatches: MismatchRecord[];
}

/** One sandbox's life: what happens in it depends on the seed alone. */
async function live(world: World, number: number, state: State, over: AbortSignal): Promise<void> {
  const possible = operations.filter(({ endsSandbox }) => !world.stays || endsSandbox !== true);
  for (let step = 0; !over.aborted; step++) {
    const operation = world.random.weighted(possible);
    const leave = await state.turns.take();
    const start = performance.now();
    try {
      await operation.run(world);
    } catch (error) {
      const { seed, onMismatch } = state.options;
      const record = { seed, sandbox: number, step, operation: operation.name, problem: described(error) };
      state.mismatches.push(record);
      onMismatch?.(record);
      // the model and the sandbox have parted: both begin anew, so that one mismatch is not many
      await replaceSandbox(world);
    } finally {
      leave();
    }
    const times = state.times.get(operation.name) ?? [];
    times.push(performance.now() - start);
    state.times.set(operation.name, times);
  }
}

async function sampleUntil(
  over: AbortSignal,
  fleet: Fleet,
  began: number,
  everyMs: number,
): Promise<Sample[]> {
  const samples: Sample[] = [];
  while (!over.aborted) {
    samples.push(await takeSample(fleet, performance.now() - began));
    await delay(everyMs, undefined, { signal: over }).catch(() => undefined);
  }
  return samples;
}

/** A sample of when the agents have given back what they worked with. */
async function atRest(fleet: Fleet): Promise<Sample> {
  let sample = await takeSample(fleet, 0);
  for (let unchanged = 0, attempt = 0; unchanged < 3 && attempt < 30; attempt++) {
    await delay(1000);
    const next = await takeSample(fleet, 0);
    unchanged = next.agentMemory < sample.agentMemory ? 0 : unchanged + 1;
    sample = next;
  }
  return sample;
}

async function settle(
  fleet: Fleet,
  before: number,
  settleMs: number,
): Promise<{ readonly leftovers: string[]; readonly after: number }> {
  for (const deadline = performance.now() + settleMs; ;) {
    const leftovers = await sandboxLeftovers(fleet);
    const after = (await takeSample(fleet, 0)).fleetFiles;
    if ((leftovers.length === 0 && after <= before) || performance.now() > deadline)
      return { leftovers, after };
    await delay(500);
  }
}

function described(error: unknown): string {
  if (error instanceof DSecError)
    return `${error.code}: ${error.message} ${JSON.stringify(error.details ?? {})}`.slice(0, 1000);
  return error instanceof Error ? `${error.name}: ${error.message}`.slice(0, 1500) : String(error);
}

/** So many at a time, first come, first served. */
class Turns {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async take(): Promise<() => void> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return () => {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    };
  }
}
