/** The soak, short: `npm run soak` is the long one. */
import { expect, test } from "vitest";
import { operations, runSoak } from "../soak/run-soak.ts";

test(
  "random operations give what the model predicts, and nothing grows or is left",
  { timeout: 180_000 },
  async () => {
    const result = await runSoak({
      sandboxes: 6,
      docker: true,
      milliseconds: 25_000,
      seed: 3,
      concurrency: 6,
      // so soon after its start a process is still warming up
      tolerance: 0.5,
      sampleMs: 1000,
      settleMs: 10_000,
    });
    expect(result.mismatches).toEqual([]);
    expect(result.leftovers).toEqual([]);
    expect(result.verdicts.filter(({ stable }) => !stable)).toEqual([]);
    const kinds = new Set([...result.operations.keys()].map((name) => name.split(":")[0]));
    expect([...kinds].sort()).toEqual([...new Set(operations.map(({ name }) => name.split(":")[0]))].sort());
  },
);
