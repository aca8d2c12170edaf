import { afterAll, beforeAll, expect, test } from "vitest";
import { busybox, containerNode } from "../container-fixture.ts";
import { Internet } from "./internet.ts";

let internet: Internet;

beforeAll(async () => {
  internet = await Internet.start();
});
afterAll(() => internet[Symbol.asyncDispose]());

test("a container reaches what its rules name, by name and address, from its first command to a restart of its daemon", async () => {
  await internet.setZone({ "a.example.test": [1], "b.example.test": [2] });
  const { address, port } = internet.nameServer;
  const node = await containerNode();
  const daemon = await node.start({ nameServers: [`${address}:${port}`] });
  const networkRules = { "a.example.test": true, "b.example.test": false, [internet.address(3)]: true };
  const { id } = await daemon.place({ ...busybox, networkRules });
  // Not by name at once: wget of a static busybox has no C library to look it up with.
  const get = (of: typeof daemon, sandbox: string, server: number, host = internet.address(server)) => {
    const lines = ["GET / HTTP/1.1", `Host: ${host}`, "Connection: close", "", ""].join("\\r\\n");
    // The server ends the connection; nc must not do so before it has answered.
    const fetch = `{ printf '${lines}'; sleep 1; } | nc -w 5 ${internet.address(server)} 80`;
    const script = `nslookup ${host} > /dev/null; ${fetch}`;
    return of.run(sandbox, ["sh", "-c", script]);
  };
  const reached = (server: number, host = internet.address(server)) => ({
    stdout: expect.stringContaining(`"server":"${internet.address(server)}","host":"${host}"`),
  });
  const nothing = { stdout: "" };
  expect(await get(daemon, id, 1, "a.example.test")).toMatchObject(reached(1, "a.example.test"));
  expect(await get(daemon, id, 2, "b.example.test")).toMatchObject(nothing);
  expect(await get(daemon, id, 3)).toMatchObject(reached(3));
  expect(await get(daemon, id, 4)).toMatchObject(nothing);
  await daemon.leave();

  const next = await node.start({ nameServers: [`${address}:${port}`] });
  await next.running.recovered;
  expect(await get(next, id, 1, "a.example.test")).toMatchObject(reached(1, "a.example.test"));
  expect(await get(next, id, 3)).toMatchObject(reached(3));
  expect(await get(next, id, 4)).toMatchObject(nothing);
  const denied = await next.place(busybox);
  expect(await get(next, denied.id, 1, "a.example.test")).toMatchObject(nothing);
  expect(await get(next, denied.id, 3)).toMatchObject(nothing);
  const counted = (metric: string) => expect.stringMatching(new RegExp(`^${metric} [1-9]`, "m"));
  const metrics = await next.metrics();
  expect(metrics).toEqual(counted('dsec_network_connections_total{verdict="allowed"}'));
  expect(metrics).toEqual(counted('dsec_network_connections_total{verdict="refused"}'));
  expect(metrics).toEqual(counted('dsec_network_queries_total{verdict="answered"}'));
  expect(metrics).toContain("\ndsec_network_interruptions_total 0\n");
});
