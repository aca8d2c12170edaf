import type { Sample } from "./sampler.ts";

export interface Verdict {
  readonly name: string;
  readonly unit: "bytes" | "count";
  /** Means of the thirds. */
  readonly middle: number;
  readonly last: number;
  readonly allowed: number;
  readonly stable: boolean;
}

const mebibyte = 1_048_576;

const measures = [
  { name: "fleet process, resident memory", unit: "bytes", of: (sample: Sample) => sample.fleetMemory },
  { name: "fleet process, open files", unit: "count", of: (sample: Sample) => sample.fleetFiles },
  {
    name: "an agent, its own memory",
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
const floors = [32 * mebibyte, 32, mebibyte / 16, 2] as const;

/** Compares the last third with the middle one; the first is for warming up. */
export function judge(samples: readonly Sample[], share: number): Verdict[] {
  const third = Math.floor(samples.length / 3);
  const middle = samples.slice(third, 2 * third);
  const last = samples.slice(2 * third);
  return measures.map(({ name, unit, of }, index) => {
    const before = mean(middle.map(of));
    const after = mean(last.map(of));
    const allowed = before * (1 + share) + (floors[index] ?? 0);
    return { name, unit, middle: before, last: after, allowed, stable: after <= allowed };
  });
}

function perAgent(value: number, { agents }: Sample): number {
  return agents === 0 ? 0 : value / agents;
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
