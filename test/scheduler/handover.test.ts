import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Sandbox } from "../../src/sdk/index.ts";
import { problemOf, send } from "../wire/wire-fixture.ts";
import { TestFleet } from "./fleet-fixture.ts";

/** A fleet whose node cannot be reached by a new connection: only what is handed over gets there. */
async function joined(): Promise<{ readonly fleet: TestFleet; readonly sandbox: Sandbox }> {
  const coordinator = { probeIntervalMs: 3_600_000 };
  const fleet = await TestFleet.start(["n1"], { handsOver: true, coordinator });
  const sandbox = await fleet.create();
  await rm(join(fleet.dir, "n1", "run", "daemon.sock"));
  return { fleet, sandbox };
}

test("requests, contents and upgrades reach a node of the same process without a connection to it", async () => {
  const { sandbox } = await joined();
  const content = randomBytes(3_000_000);
  async function* parts(): AsyncGenerator<Buffer> {
    for (let at = 0; at < content.length; at += 70_000) yield content.subarray(at, at + 70_000);
  }
  await sandbox.files.write("/tmp/f", parts());
  expect((await sandbox.files.read("/tmp/f")).equals(content)).toBe(true);
  await sandbox.files.rename("/tmp/f", "/tmp/g");
  expect((await sandbox.files.stat("/tmp/g")).size).toBe(content.length);
  const { stdoutBytes, exitCode } = await sandbox.exec(["cat"], { stdin: content });
  expect([stdoutBytes.equals(content), exitCode]).toEqual([true, 0]);
  expect((await sandbox.refresh()).state).toBe("running");
});

test("what is handed over is checked as it is on the wire, and refused by name", async () => {
  const { fleet, sandbox } = await joined();
  const headers = { authorization: `Bearer ${fleet.coordinator.token}` };
  const path = `/v1/sandboxes/${sandbox.id}/touch`;
  const unknown = await send(fleet.address, "POST", path, { headers, body: '{"ttl":1}' });
  expect(problemOf(unknown)).toMatchObject({ code: "invalid_argument", title: "ttl: unknown field" });
  const chunked = { ...headers, "transfer-encoding": "chunked" };
  expect((await send(fleet.address, "POST", path, { headers: chunked, body: "{}" })).status).toBe(200);
  // the token of the nodes is not the fleet's
  const nodes = { authorization: `Bearer ${fleet.nodeToken}` };
  expect(problemOf(await send(fleet.address, "POST", path, { headers: nodes, body: "{}" })).code).toBe(
    "unauthenticated",
  );
  await expect(sandbox.files.write("/no/such/dir", "x")).rejects.toMatchObject({ code: "file_error" });
  await expect(sandbox.exec(["true"], { cwd: "relative" })).rejects.toMatchObject({
    code: "invalid_argument",
  });
});

test("a client that goes away ends its command, and a node that has closed is unreachable", async () => {
  const { fleet, sandbox } = await joined();
  const cat = await sandbox.spawn(["cat"], { stdin: true });
  cat.disconnect();
  await expect.poll(async () => (await sandbox.refresh()).activeExecs).toBe(0);
  await fleet.stopNode("n1");
  await expect(sandbox.refresh()).rejects.toMatchObject({ code: "node_unreachable" });
});
