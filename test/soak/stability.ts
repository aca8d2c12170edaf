import type { Sample } from "./sampler.ts";

export interface Verdict {
  readonly name: string;
  readonly unit: "bytes" | "count";
  /** The middle third's mean, or what was there before everything. */
  readonly before: number;
  /** The last third's mean, or what was there after everything. */
  readonly after: number;
  readonly allowed: number;
  readonly stable: boolean;
}

const mebibyte = 1_048_576;

const measures = [
  { name: "fleet process, resident memory", unit: "bytes", of: (sample: Sample) => sample.fleetMemory },
  { name: "fleet process, open files", unit: "count", of: (sample: Sample) => sample.fleetFiles },
  {
    name: "an agent at work, its own memory",
    unit: "bytes",
    of: (sample: Sample) => perAgent(sample.agentMemory, sample),
  },
  {
    name: "an agent, open files",
    unit: "count",
    of: (sample: Sample) => perAgent(sample.agentFiles, sample),
  },
] as const;

/** Floors of what counts as growth: a heap's breathing, a connection more or less. */
const floors = [32 * mebibyte, 32, mebibyte / 8, 2] as const;

/** Bytes: what five sessions and some commands that run on take. */
const restFloor = mebibyte / 16;

/** Compares the last third with the middle one; the first is for warming up. */
export function judge(samples: readonly Sample[], share: number): Verdict[] {
  const third = Math.floor(samples.length / 3);
  const middle = samples.slice(third, 2 * third);
  const last = samples.slice(2 * third);
  return measures.map(({ name, unit, of }, index) => {
    const before = mean(middle.map(of));
    const after = mean(last.map(of));
    const allowed = before * (1 + share) + (floors[index] ?? 0);
    return { name, unit, before, after, allowed, stable: after <= allowed };
  });
}

/** Compares agents that have nothing to do: before all operations, and after. Every shell that lives on costs a little. */
export function judgeRest(before: Sample, after: Sample, share: number): Verdict[] {
  const values = [perAgent(before.agentMemory, before), perAgent(after.agentMemory, after)] as const;
  const allowed = values[0] * (1 + share) + restFloor;
  const name = "an agent at rest, its own memory, before and after all operations";
  return [
    { name, unit: "bytes", before: values[0], after: values[1], allowed, stable: values[1] <= allowed },
  ];
}

function perAgent(value: number, { agents }: Sample): number {
  return agents === 0 ? 0 : value / agents;
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
