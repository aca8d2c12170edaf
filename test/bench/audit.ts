/** What an audit costs: programs started one after the other in a sandbox of a node that audits, against one that does not. */
import type { DSecClient } from "../../src/sdk/index.ts";
import { startFleet } from "../e2e/fleet.ts";
import { quantile } from "./support/measure.ts";
import { fixed, Report } from "./support/report.ts";

const rounds = 5;
const programs = 3000;
const loop = `i=0; while [ $i -lt ${programs} ]; do /bin/true; i=$((i+1)); done`;

await using plain = await startFleet();
await using plainClient = await plain.client();
const sandboxOf = async (client: DSecClient) =>
  client.runContainer({ image: "busybox", engine: "runc", memoryMb: 64 });
const bystander = await sandboxOf(plainClient);

const rates = { off: new Array<number>(), bystander: new Array<number>(), on: new Array<number>() };
await rate(bystander);
for (let round = 0; round < rounds; round += 1) {
  rates.off.push(await rate(bystander));
  await using auditing = await startFleet({ flags: ["--audit"] });
  await using client = await auditing.client();
  const audited = await sandboxOf(client);
  rates.bystander.push(await rate(bystander));
  rates.on.push(await rate(audited));
}

const report = new Report("The audit of sandboxes' processes");
const off = quantile(rates.off, 0.5);
report.table(
  `\`/bin/true\`, ${programs} times one after the other, by a shell in a sandbox; median of ${rounds} rounds`,
  ["", "programs a second", "÷ without audit"],
  [
    ["no audit on the machine", fixed(off, 0), "1.00"],
    [
      "another fleet's sandboxes are audited",
      fixed(quantile(rates.bystander, 0.5), 0),
      ratio(rates.bystander),
    ],
    ["audited: a start and an end are recorded for each", fixed(quantile(rates.on, 0.5), 0), ratio(rates.on)],
  ],
);
await report.save("audit", "npm run bench -- audit");

async function rate(sandbox: Awaited<ReturnType<typeof sandboxOf>>): Promise<number> {
  const start = performance.now();
  const { exitCode } = await sandbox.exec(["sh", "-c", loop]);
  if (exitCode !== 0) throw new Error(`the loop answered ${exitCode}`);
  return programs / ((performance.now() - start) / 1000);
}

function ratio(of: readonly number[]): string {
  return fixed(quantile(of, 0.5) / off, 2);
}
