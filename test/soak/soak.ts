/**
 * Random operations on many sandboxes, every result predicted by a model.
 * Every fifth sandbox is of the engine docker: on the machine's own dockerd, or on one that is started for it.
 * `npm run soak -- [--minutes 30] [--sandboxes 50] [--seed N] [--concurrency 8] [--report docs/soak.md]`
 */
import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { setup as dockerForTests } from "../setup/dockerd.ts";
import { runSoak } from "./run-soak.ts";
import { isClean, soakReport } from "./soak-report.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "30" },
    sandboxes: { type: "string", default: "50" },
    seed: { type: "string", default: "1" },
    concurrency: { type: "string", default: "8" },
    report: { type: "string" },
  },
});
const { minutes, sandboxes, seed, concurrency } = values;
const milliseconds = Number(minutes) * 60_000;
const disposeDocker = await dockerForTests();
const result = await runSoak({
  docker: true,
  sandboxes: Number(sandboxes),
  milliseconds,
  seed: Number(seed),
  concurrency: Number(concurrency),
  tolerance: 0.1,
  sampleMs: Math.min(5000, milliseconds / 30),
  settleMs: 60_000,
  onMismatch: (record) => console.error("mismatch:", record),
}).finally(disposeDocker);
const report = soakReport(
  result,
  `npm run soak -- --minutes ${minutes} --sandboxes ${sandboxes} --seed ${seed}`,
);
process.stdout.write(report);
if (values.report !== undefined) await writeFile(values.report, report);
process.exitCode = isClean(result) ? 0 : 1;
