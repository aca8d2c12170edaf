import { expectEqual, expectRefusal } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { ports, replaceSandbox, type World } from "./world.ts";

async function touch({ sandbox, random }: World): Promise<void> {
  const ttl = random.between(1000, 4000);
  const { spec, state } = await sandbox.touch({ ttlRunningStop: ttl });
  expectEqual("a touch", [spec.ttlRunningStop, state], [ttl, "running"]);
}

async function update(world: World): Promise<void> {
  const { sandbox, random } = world;
  const labels = { [`l${random.int(3)}`]: `v${random.int(100)}` };
  const memoryMb = random.pick([96, 128, 160]);
  const info = await sandbox.update({ labels, memoryMb });
  world.labels = labels;
  expectEqual("an update", [info.labels, info.spec.memoryMb], [labels, memoryMb]);
}

async function look({ sandbox, client, labels }: World): Promise<void> {
  const { state, labels: found } = await (await client.get(sandbox.id)).refresh();
  expectEqual("a look", [state, found], ["running", labels]);
}

/** After its end everything is refused by name, what was recorded can still be read, and another takes its place. */
async function replace(world: World): Promise<void> {
  const { sandbox, random } = world;
  const mark = `m${random.int(1_000_000)}`;
  const exec = await sandbox.execDetached(["sh", "-c", `echo ${mark}; sleep 1000`]);
  for await (const line of sandbox.logs({ exec, follow: true })) if (line.type === "output") break;
  const stopped = await sandbox.stop();
  expectEqual("a stop", [stopped.state, stopped.endReason], ["stopped", "stopped"]);
  const gone = "sandbox_not_running";
  await expectRefusal("an exec after the end", sandbox.exec(["true"]), gone);
  await expectRefusal("a session after the end", sandbox.runShell("true"), gone);
  await expectRefusal("a file after the end", sandbox.files.read("/etc/passwd"), gone);
  await expectRefusal("a connection after the end", sandbox.connect(ports.echo), gone);
  await expectRefusal("a request after the end", sandbox.fetch(ports.http, "/small.txt"), gone);
  let recorded = "";
  for await (const line of sandbox.logs({ exec }))
    if (line.type === "output") recorded += Buffer.from(line.data, "base64").toString();
  expectEqual("a record after the end", recorded, `${mark}\n`);
  await replaceSandbox(world);
  await expectRefusal("a sandbox that was removed", sandbox.refresh(), "not_found");
}

export const lifecycleOperations: readonly Operation[] = [
  { name: "lifecycle: touch", weight: 2, run: touch },
  { name: "lifecycle: update", weight: 2, run: update },
  { name: "lifecycle: look", weight: 2, run: look },
  { name: "lifecycle: stop, then replace", weight: 1.4, run: replace, endsSandbox: true },
];
