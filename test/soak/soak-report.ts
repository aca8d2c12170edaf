import { cpus, release, totalmem } from "node:os";
import { quantile } from "../bench/support/measure.ts";
import { operations, type SoakResult } from "./run-soak.ts";
import type { Verdict } from "./stability.ts";

/** What issue 3 has that no operation here does yet. */
export const notCovered = [
  "terminals of the CLI (`-t`, `dsec shell`, `dsec attach`), which have their own tests",
  "sparse files and hard links, which have their own tests",
  "the memory of agents in docker's containers",
] as const;

/** Open files that the fleet's process may have more at the end than at the beginning. */
const fileSlack = 8;

/** Whether nothing differed from the model, nothing grew and nothing was left. */
export function isClean({ mismatches, verdicts, leftovers, files }: SoakResult): boolean {
  return (
    mismatches.length === 0 &&
    verdicts.every(({ stable }) => stable) &&
    leftovers.length === 0 &&
    files.after <= files.before + fileSlack
  );
}

/** @param command what gives the same run again */
export function soakReport(result: SoakResult, command: string): string {
  const { options, milliseconds, mismatches, samples, verdicts, leftovers, files } = result;
  const total = [...result.operations.values()].reduce((sum, times) => sum + times.length, 0);
  const [cpu] = cpus();
  return [
    "# Soak: random operations against a model",
    "",
    `\`${command}\``,
    "",
    `${options.sandboxes} sandboxes (containers, engine runc${options.docker ? ", every fifth docker" : ""}), ${(milliseconds / 60_000).toFixed(1)} minutes, seed ${options.seed}, ` +
      `${options.concurrency} operations at a time; ${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpu?.model ?? "?"}, ` +
      `${(totalmem() / 2 ** 30).toFixed(0)} GiB, Linux ${release()}.`,
    "",
    `**${total} operations, ${mismatches.length} mismatches.** ` +
      `Left behind after all sandboxes were removed: ${leftovers.length === 0 ? "nothing" : leftovers.join(", ")}. ` +
      `Open files of the fleet's process: ${files.before} before, ${files.after} after (${fileSlack} more are allowed).`,
    "",
    "Each sandbox has a model in TypeScript, which predicts every result: bytes, exit codes, errors, what a session remembers, what is in",
    "the files. What happens in a sandbox depends on the seed and its number alone. Every second sandbox lives as long as the soak, the others",
    "are stopped and replaced now and then. CI runs the same code for 25 seconds on 6 sandboxes (`test/e2e/soak.test.ts`).",
    "",
    ...mismatches.flatMap(({ seed, sandbox, step, operation, problem }) => [
      `- seed ${seed}, sandbox ${sandbox}, step ${step}, ${operation}: ${problem}`,
    ]),
    ...(mismatches.length > 0 ? [""] : []),
    "## Stability",
    "",
    `${samples.length} samples; means of the middle third and of the last. Allowed is ${options.tolerance * 100} % more than the middle third, ` +
      "and a floor.",
    "",
    "| | Middle third, or before | Last third, or after | Allowed | |",
    "| --- | ---: | ---: | ---: | --- |",
    ...verdicts.map(
      (verdict) =>
        `| ${verdict.name} | ${shown(verdict, verdict.before)} | ${shown(verdict, verdict.after)} | ` +
        `${shown(verdict, verdict.allowed)} | ${verdict.stable ? "stable" : "**grows**"} |`,
    ),
    "",
    "## Operations",
    "",
    "Times are of the whole operation, often of several calls, on a machine that is kept busy: no benchmark.",
    "",
    "| | Count | p50 ms | p99 ms |",
    "| --- | ---: | ---: | ---: |",
    ...operations.map(({ name }) => {
      const times = result.operations.get(name) ?? [];
      const at = (q: number): string => (times.length === 0 ? "–" : quantile(times, q).toFixed(1));
      return `| ${name} | ${times.length} | ${at(0.5)} | ${at(0.99)} |`;
    }),
    "",
    "Not part of it:",
    "",
    ...notCovered.map((what) => `- ${what}`),
    "",
  ].join("\n");
}

function shown({ unit }: Verdict, value: number): string {
  if (unit === "count") return value.toFixed(1);
  return value >= 2 ** 22 ? `${(value / 2 ** 20).toFixed(1)} MiB` : `${(value / 1024).toFixed(0)} KiB`;
}
