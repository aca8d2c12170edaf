import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { DSecClient } from "../../src/sdk/index.ts";
import { problemOf, send as sendAs, token as otherToken } from "../wire/wire-fixture.ts";
import { TestFleet } from "./fleet-fixture.ts";
import { scriptedNode, statusOf } from "./scripted-node.ts";

describe("the coordinator", () => {
  test("refuses a second one on its socket", async () => {
    const fleet = await TestFleet.start();
    const first = fleet.coordinator;
    await expect(fleet.startCoordinator()).rejects.toMatchObject({ code: "already_running" });
    expect(first.addresses).toEqual([fleet.address]);
    expect((await fleet.client.version()).role).toBe("coordinator");
  });

  test("goes on when its store cannot be swept", async () => {
    const logged: string[] = [];
    const log = pino({}, { write: (line: string) => void logged.push(line) });
    const fleet = await TestFleet.start(["n1"], { coordinator: { log, sweepIntervalMs: 20 } });
    const store = new DatabaseSync(join(fleet.dir, "data", "coordinator", "store.sqlite"));
    store.exec("DROP TABLE creates");
    store.close();
    await expect.poll(() => logged.join("")).toContain("old keys and nodes could not be forgotten");
    expect(await fleet.health("n1")).toBe("healthy");
  });

  test("counts what it does", async () => {
    const fleet = await TestFleet.start();
    await fleet.create();
    const { token } = fleet.coordinator;
    const { text } = await sendAs(fleet.address, "GET", "/metrics", {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(text).toContain('dsec_coordinator_nodes{health="healthy"} 1');
    expect(text).toContain('dsec_coordinator_create_seconds_count{outcome="created"} 1');
  });

  test("takes only its own token, on every kind of route", async () => {
    const fleet = await TestFleet.start();
    const { id } = await fleet.create();
    const headers = { authorization: `Bearer ${otherToken}` };
    const upgrade = { ...headers, connection: "upgrade", upgrade: "websocket" };
    for (const path of ["/v1/sandboxes", `/v1/sandboxes/${id}`, "/v1/watch", "/metrics"])
      expect(problemOf(await sendAs(fleet.address, "GET", path, { headers })).code).toBe("unauthenticated");
    const refused = await sendAs(fleet.address, "GET", `/v1/sandboxes/${id}/exec`, { headers: upgrade });
    expect(problemOf(refused).code).toBe("unauthenticated");
  });

  test("passes bodies on unread, and the node's refusal back", async () => {
    const fleet = await TestFleet.start();
    const { id } = await fleet.create();
    const headers = { authorization: `Bearer ${fleet.coordinator.token}` };
    const path = `/v1/sandboxes/${id}/touch`;
    const unknown = await sendAs(fleet.address, "POST", path, { headers, body: '{"ttl":1}' });
    expect(problemOf(unknown)).toMatchObject({ code: "invalid_argument", title: "ttl: unknown field" });
    const large = await sendAs(fleet.address, "POST", path, {
      headers,
      body: JSON.stringify("x".repeat(1_100_000)),
    });
    expect(problemOf(large)).toMatchObject({ code: "body_too_large", status: 413 });
    const chunked = { ...headers, "transfer-encoding": "chunked" };
    expect((await sendAs(fleet.address, "POST", path, { headers: chunked, body: "{}" })).status).toBe(200);
  });

  test("drops an exec connection when either end goes", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const cat = await sandbox.spawn(["cat"], { stdin: true });
    cat.disconnect();
    await expect.poll(async () => (await sandbox.refresh()).activeExecs).toBe(0);
    const { token } = fleet.coordinator;
    const gauge = async (): Promise<string> =>
      (await sendAs(fleet.address, "GET", "/metrics", { headers: { authorization: `Bearer ${token}` } }))
        .text;
    await expect.poll(gauge).toContain("dsec_coordinator_exec_connections 0");
  });

  test("answers an upgrade that is no WebSocket with a problem", async () => {
    const fleet = await TestFleet.start();
    const headers = {
      authorization: `Bearer ${fleet.coordinator.token}`,
      connection: "upgrade",
      upgrade: "h2c",
    };
    const answer = await sendAs(fleet.address, "GET", "/v1/sandboxes/abc/exec", { headers });
    expect(problemOf(answer)).toMatchObject({ code: "invalid_argument" });
  });

  test("malformed frames end that exec and nothing else", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const socket = connect(fleet.address.slice("unix:".length));
    onTestFinished(() => void socket.destroy());
    socket.write(
      `GET /v1/sandboxes/${sandbox.id}/exec HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${fleet.coordinator.token}\r\n` +
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    const [head] = (await once(socket, "data")) as [Buffer];
    expect(String(head)).toContain("101 Switching Protocols");
    socket.resume().write(Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
    await once(socket, "close");
    expect((await sandbox.exec(["true"])).exitCode).toBe(0);
  });

  test("ends on request, after having answered", async () => {
    const ended = Promise.withResolvers<void>();
    const fleet = await TestFleet.start(["n1"], { coordinator: { onShutdown: () => ended.resolve() } });
    const sandbox = await fleet.create();
    await fleet.client.shutdown({ sandboxes: "stop" });
    await ended.promise;
    expect((await sandbox.refresh()).state).toBe("stopped");
  });

  test("ends every sandbox of a node, whichever page lists it and whichever cannot be ended", async () => {
    const ended = Promise.withResolvers<void>();
    const stopped: string[] = [];
    const daemon = await scriptedNode(async (url, respond, cut) => {
      const [, id] = /^\/v1\/sandboxes\/(.*)\/stop$/.exec(url) ?? [];
      if (url === "/v1/node") respond(200, statusOf("n2"));
      else if (url.includes("cursor=")) respond(200, { items: [{ id: "n2-c" }] });
      else if (id === undefined) respond(200, { items: [{ id: "n2-a" }, { id: "n2-b" }], nextCursor: "b" });
      else if (id === "n2-b") cut();
      else {
        stopped.push(id);
        respond(200, {});
      }
    });
    const fleet = await TestFleet.start([], { coordinator: { onShutdown: () => ended.resolve() } });
    await fleet.register("n2", daemon);
    await fleet.client.shutdown({ sandboxes: "stop" });
    await ended.promise;
    expect(stopped).toEqual(["n2-a", "n2-c"]);
  });

  test("a client that speaks of nothing gets the fleet of its environment", async () => {
    const fleet = await TestFleet.start();
    const environment = {
      DSEC_ADDRESS: fleet.address,
      DSEC_TOKEN: fleet.coordinator.token,
      DSEC_CONFIG: "/none",
    };
    await using client = await DSecClient.open({ environment });
    expect((await client.version()).api).toBe("v1");
  });
});
