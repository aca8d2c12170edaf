import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setUp } from "./setup.mjs";
import { runOnTerminal } from "./setup/command.mjs";
import { isRoot, projectNode, projectRoot } from "./setup/project.mjs";
import { runScript, say } from "./setup/steps.mjs";

/**
 * The set-up, then all tests. Arguments go to vitest: `npm test -- test/sdk`. The last line on stdout counts tests;
 * DSEC_TEST_SUMMARY may name a file that gets the same line.
 */
await runScript(async () => {
  if (!isRoot && process.env["CI"]) {
    say("✗ not root: in CI all tests must run, and the real ones need root");
    return 1;
  }
  await setUp({ tests: true });
  const scratch = mkdtempSync(join(tmpdir(), "dsec-test-report-"));
  try {
    const report = join(scratch, "report.json");
    /** @type {string[]} */
    const crash = [];
    const exitCode = await runOnTerminal(projectNode, vitestCommand(report), crashKeeper(crash));
    for (const line of crash) say(`  ${line}`);
    const { passed, failed } = countTests(report, exitCode);
    const summary = `${passed} passed, ${failed} failed`;
    const file = process.env["DSEC_TEST_SUMMARY"];
    if (file !== undefined) writeFileSync(file, `${summary}\n`);
    process.stdout.write(`${summary}\n`);
    if (passed + failed === 0) say("✗ no test ran");
    return failed > 0 || passed === 0 ? 1 : 0;
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

/**
 * What V8 says before it ends a worker stands far above the list of failures: kept, to be said again below it.
 *
 * @param {string[]} kept
 * @returns {(line: string) => void} of what vitest prints on stderr
 */
function crashKeeper(kept) {
  let left = 0;
  return (line) => {
    if (/^# Fatal error|^FATAL ERROR|^abort: /.test(line)) left = 30;
    if (left === 0 || kept.length === 120) return;
    left -= 1;
    kept.push(line);
  };
}

/** @param {string} report */
function vitestCommand(report) {
  const vitest = join(projectRoot, "node_modules", "vitest", "vitest.mjs");
  const command = [vitest, "run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  if (!isRoot) {
    say("! not root: only the tests of pure logic are run (project unit)");
    command.push("--project=unit");
  }
  return [...command, ...process.argv.slice(2)];
}

/**
 * A file that failed outside its tests (at import, in a hook) counts as one failure; so does a run that vitest
 * calls failed without naming a test, as after an unhandled rejection.
 *
 * @param {string} report
 * @param {number} exitCode vitest's
 */
function countTests(report, exitCode) {
  if (!existsSync(report)) return { passed: 0, failed: exitCode === 0 ? 0 : 1 };
  /** @type {{ numPassedTests: number, numFailedTests: number, numPendingTests: number, testResults: { status: string, assertionResults: { status: string }[] }[] }} */
  const { numPassedTests, numFailedTests, numPendingTests, testResults } = JSON.parse(
    readFileSync(report, "utf8"),
  );
  const brokenFiles = testResults.filter(
    ({ status, assertionResults }) =>
      status === "failed" && !assertionResults.some((result) => result.status === "failed"),
  ).length;
  if (numPendingTests > 0) say(`! ${numPendingTests} skipped`);
  let failed = numFailedTests + brokenFiles;
  if (failed === 0 && numPassedTests > 0 && exitCode !== 0) {
    say(`✗ vitest ended with ${exitCode} although no test failed: counted as one failure`);
    failed = 1;
  }
  return { passed: numPassedTests, failed };
}
