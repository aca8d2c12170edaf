/** What an audit costs: programs started one after the other in a sandbox of a node that audits, against one that does not. */
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "../e2e/fleet.ts";
import { quantile } from "./support/measure.ts";
import { cpuSeconds } from "./support/process-cpu.ts";
import { fixed, Report } from "./support/report.ts";

const rounds = 7;
const programs = 2000;
const loop = `i=0; while [ $i -lt ${programs} ]; do /bin/true; i=$((i+1)); done`;

await using plain = await startFleet();
await using plainClient = await plain.client();
const bystander = await sandboxOf(plainClient);

/** CPU microseconds a program: of the sandbox by its control group, of the node by its processes. */
const costs = { off: new Array<number>(), bystander: new Array<number>(), on: new Array<number>() };
const node = { off: new Array<number>(), on: new Array<number>() };
await cost(bystander, plain, []);
for (let round = 0; round < rounds; round += 1) {
  costs.off.push(await cost(bystander, plain, node.off));
  await using auditing = await startFleet({ flags: ["--audit"] });
  await using client = await auditing.client();
  const audited = await sandboxOf(client);
  costs.bystander.push(await cost(bystander, plain, []));
  costs.on.push(await cost(audited, auditing, node.on));
}

const off = quantile(costs.off, 0.5);
const report = new Report("The audit of sandboxes' processes");
report.table(
  `\`/bin/true\`, ${programs} times one after the other, by a shell in a sandbox; medians of ${rounds} rounds`,
  ["", "CPU µs a program, in the sandbox", "÷ without audit", "CPU µs a program, of daemon and reader"],
  [
    row("no audit on the machine", costs.off, node.off),
    row("another fleet's sandboxes are audited", costs.bystander, undefined),
    row("audited: a start and an end are recorded for each", costs.on, node.on),
  ],
);
await report.save("audit", "npm run bench -- audit");

async function sandboxOf(client: DSecClient): Promise<Sandbox> {
  return client.runContainer({ image: "busybox", engine: "runc", memoryMb: 64 });
}

async function cost(sandbox: Sandbox, fleet: Fleet, ofNode: number[]): Promise<number> {
  const inside = async (): Promise<number> => (await sandbox.refresh()).usage?.cpuSeconds ?? Number.NaN;
  const outside = (): number =>
    cpuSeconds((pid, command) => pid === fleet.pid || (fleet === plain ? false : command === "dsec-audit"));
  const [before, nodeBefore] = [await inside(), outside()];
  const { exitCode } = await sandbox.exec(["sh", "-c", loop]);
  if (exitCode !== 0) throw new Error(`the loop answered ${exitCode}`);
  ofNode.push(((outside() - nodeBefore) * 1e6) / programs);
  return (((await inside()) - before) * 1e6) / programs;
}

function row(title: string, inside: readonly number[], outside: readonly number[] | undefined): string[] {
  const median = quantile(inside, 0.5);
  const beside = outside === undefined ? "" : fixed(quantile(outside, 0.5), 0);
  return [title, fixed(median, 0), fixed(median / off, 2), beside];
}
