import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { createServer as createRawServer, type Socket } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { errorTable } from "../../src/protocol/errors.ts";
import { maxBodyBytes } from "../../src/protocol/routes.ts";
import { newClient, newServer, temporaryDir } from "./wire-fixture.ts";

/** A server that answers as the test wants, with or without sense. */
async function scripted(handler: RequestListener): Promise<string> {
  const server = createServer(handler);
  const path = join(await temporaryDir(), "a.sock");
  server.listen(path);
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `unix:${path}`;
}

/** A server below HTTP. */
async function raw(connected: (socket: Socket) => void): Promise<string> {
  const server = createRawServer(connected);
  const path = join(await temporaryDir(), "a.sock");
  server.listen(path);
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return `unix:${path}`;
}

const create = { body: { image: "busybox" } };

describe("errors of the connection", () => {
  test("nobody there: unreachable, and certainly nothing happened", async () => {
    const client = newClient(`unix:${await temporaryDir()}/none.sock`);
    await expect(client.json("createSandbox", create)).rejects.toMatchObject({
      code: "node_unreachable",
      ambiguous: false,
    });
  });

  test("a connection lost after the request: ambiguous where it changes something", async () => {
    const client = newClient(await raw((socket) => void socket.once("data", () => socket.destroy())));
    await expect(client.json("createSandbox", create)).rejects.toMatchObject({
      code: "connection_lost",
      ambiguous: true,
    });
    await expect(client.json("nodeStatus")).rejects.toMatchObject({
      code: "connection_lost",
      ambiguous: false,
    });
  });

  test("an idempotent request is sent again, a few times", async () => {
    let requests = 0;
    const address = await scripted((_request, response) => {
      requests += 1;
      if (requests < 3) response.destroy();
      else response.end('{"version":"1"}');
    });
    expect(await newClient(address).json("version")).toEqual({ version: "1" });
    expect(requests).toBe(3);
  });

  test("one that is not is sent once", async () => {
    let requests = 0;
    const address = await scripted((_request, response) => {
      requests += 1;
      response.destroy();
    });
    await expect(newClient(address).json("createSandbox", create)).rejects.toMatchObject({ ambiguous: true });
    expect(requests).toBe(1);
    await expect(
      newClient(address).json("createSandbox", { ...create, idempotent: true }),
    ).rejects.toMatchObject({
      code: "connection_lost",
      ambiguous: true,
    });
    expect(requests).toBe(6);
  });

  test("an answer that is cut short is an error", async () => {
    const address = await scripted((_request, response) => {
      response.writeHead(200, { "content-length": 100 });
      response.write('{"version"', () => response.destroy());
    });
    await expect(newClient(address).json("version")).rejects.toMatchObject({ code: "connection_lost" });
  });

  test("an answer that does not come in time is given up, once", async () => {
    let requests = 0;
    const address = await scripted(() => {
      requests += 1;
    });
    const call = newClient(address).json("placeSandbox", { params: { id: "n1-aaaaaaaaaa" }, timeoutMs: 50 });
    await expect(call).rejects.toMatchObject({ code: "connection_lost", ambiguous: true });
    expect(requests).toBe(1);
  });

  test("a caller that gives up gets its reason", async () => {
    const begun = Promise.withResolvers<void>();
    const client = newClient(await scripted(() => begun.resolve()));
    const controller = new AbortController();
    const call = client.json("createSandbox", { ...create, signal: controller.signal });
    await begun.promise;
    const reason = new Error("enough");
    controller.abort(reason);
    await expect(call).rejects.toMatchObject({ code: "cancelled", ambiguous: true, cause: reason });
    const late = client.json("createSandbox", { ...create, signal: controller.signal });
    await expect(late).rejects.toMatchObject({ code: "cancelled", ambiguous: false });
  });

  test("a stream that falls silent is lost", async () => {
    const address = await scripted((_request, response) => void response.write('{"type":"ping"}\n'));
    const lines = await newClient(address).lines("watch", { idleTimeoutMs: 50 });
    expect((await lines.next()).value).toEqual({ type: "ping" });
    await expect(lines.next()).rejects.toMatchObject({ code: "connection_lost" });
  });
});

describe("answers", () => {
  const problem = {
    type: "urn:dsec:error:no_capacity",
    title: "no room",
    status: 503,
    code: "no_capacity",
    retryable: true,
    ambiguous: false,
    retryAfterMs: 700,
    details: { refusals: [] },
    chain: ["full", "disk"],
  };

  test("a problem becomes the error it was", async () => {
    const address = await scripted((_request, response) => {
      response.writeHead(503, { "content-type": "application/problem+json" }).end(JSON.stringify(problem));
    });
    await expect(newClient(address).json("createSandbox", create)).rejects.toMatchObject({
      name: "DSecError",
      code: "no_capacity",
      message: "no room",
      retryable: errorTable.no_capacity.retryable,
      retryAfterMs: 700,
      details: { refusals: [] },
      cause: { message: "full", cause: { message: "disk" } },
    });
  });

  test("a code from the future is internal, its message is kept", async () => {
    const address = await scripted((_request, response) => {
      const body = JSON.stringify({ ...problem, code: "quota_of_2031" });
      response.writeHead(503, { "content-type": "application/problem+json" }).end(body);
    });
    await expect(newClient(address).json("nodeStatus")).rejects.toMatchObject({
      code: "internal",
      message: "no room",
    });
  });

  test.each([
    ["no problem behind an error status", 500, "text/html", "<h1>oops</h1>"],
    ["no JSON", 200, "application/json", "<h1>hello</h1>"],
    ["JSON that is no problem", 502, "application/problem+json", "[]"],
  ])("%s is a protocol error", async (_, status, type, body) => {
    const address = await scripted((_request, response) => {
      response.writeHead(status, { "content-type": type }).end(body);
    });
    await expect(newClient(address).json("nodeStatus")).rejects.toMatchObject({ code: "protocol_error" });
  });

  test("a last line without its end is a protocol error", async () => {
    const address = await scripted(
      (_request, response) => void response.end('{"type":"ping"}\n{"type":"syn'),
    );
    const lines = await newClient(address).lines("watch");
    expect((await lines.next()).value).toEqual({ type: "ping" });
    await expect(lines.next()).rejects.toMatchObject({ code: "protocol_error" });
  });

  test("lines and characters may be cut anywhere between packets", async () => {
    const text = '{"name":"grüße ☃"}\n\n{"name":"b"}\n';
    const address = await scripted((_request, response) => {
      const bytes = [...Buffer.from(text)];
      const next = (): void => {
        const byte = bytes.shift();
        if (byte === undefined) response.end();
        else response.write(Buffer.of(byte), next);
      };
      next();
    });
    const lines: unknown[] = [];
    for await (const line of await newClient(address).lines("watch")) lines.push(line);
    expect(lines).toEqual([{ name: "grüße ☃" }, { name: "b" }]);
  });
});

describe("requests", () => {
  test("a body beyond the limit never leaves", async () => {
    const client = newClient(`unix:${await temporaryDir()}/none.sock`);
    const call = client.json("createSandbox", { body: { image: "x".repeat(maxBodyBytes) } });
    await expect(call).rejects.toMatchObject({ code: "body_too_large" });
  });

  test("connections are kept for the next request", async () => {
    const server = newServer();
    const address = await server.listen(`unix:${join(await temporaryDir(), "a.sock")}`);
    const client = newClient(address);
    for (let count = 0; count < 5; count += 1)
      expect(await client.json("version")).toMatchObject({ version: "1.2.3" });
    const again = client.json("version");
    await expect(again).resolves.toMatchObject({ role: "daemon" });
  });

  test("a wrong token is told from none", async () => {
    const server = newServer();
    server.handle("metrics", async () => ({ contentType: "text/plain", text: "" }));
    const address = await server.listen(`unix:${join(await temporaryDir(), "a.sock")}`);
    await expect(newClient(address, "wrong").json("metrics")).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("not this server's"),
    });
  });
});
