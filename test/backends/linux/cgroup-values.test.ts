import { expect, test } from "vitest";
import { cpuQuotaMicros, cpuShares, cpuWeight } from "../../../src/backends/linux/cgroup-values.ts";

const cases = [
  { cpus: 1, shares: 1024, weight: 39 },
  { cpus: 0.5, shares: 512, weight: 20 },
  { cpus: 0.001, shares: 2, weight: 1 },
  { cpus: 64, shares: 65_536, weight: 2500 },
  { cpus: 1024, shares: 262_144, weight: 10_000 },
] as const;

test.for(cases)("$cpus cores are $shares shares and a weight of $weight", ({ cpus, shares, weight }) => {
  expect(cpuShares({ cpus, class: "latency-sensitive" })).toBe(shares);
  expect(cpuWeight({ cpus, class: "latency-sensitive" })).toBe(weight);
});

test("best-effort weighs the least possible, whatever it asked for", () => {
  expect(cpuShares({ cpus: 64, class: "best-effort" })).toBe(2);
  expect(cpuWeight({ cpus: 64, class: "best-effort" })).toBe(1);
});

test("a CPU ceiling is a quota per period, never below what the kernel accepts", () => {
  expect(cpuQuotaMicros(1.5)).toBe(150_000);
  expect(cpuQuotaMicros(0.001)).toBe(1000);
  expect(cpuQuotaMicros(null)).toBeUndefined();
});
