import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { DSecError } from "../../src/protocol/errors.ts";
import { maxBodyBytes } from "../../src/protocol/routes.ts";
import type { ReclaimResult, Sandbox, WatchEvent } from "../../src/protocol/sandbox.ts";
import type { WireServer } from "../../src/wire/server/server.ts";
import { newClient, newServer, problemOf, send, temporaryDir, token } from "./wire-fixture.ts";

const nothing: ReclaimResult = { items: [], memoryBytes: 0, diskBytes: 0 };

async function listening(routes: (server: WireServer) => void = () => undefined): Promise<string> {
  const server = newServer();
  routes(server);
  return server.listen(`unix:${join(await temporaryDir(), "a.sock")}`);
}

describe("authentication", () => {
  test("everything but the version needs the token", async () => {
    const address = await listening((server) => {
      server.handle("metrics", async () => ({ contentType: "text/plain", text: "" }));
      server.handleUpgrade("exec", ({ socket }) => void socket.end("HTTP/1.1 101 No\r\n\r\n"));
    });
    expect((await send(address, "GET", "/v1/version", { anonymous: true })).status).toBe(200);
    const upgrade = { connection: "upgrade", upgrade: "websocket" };
    for (const path of ["/metrics", "/v1/openapi.json", "/v1/nothing", "/v1/version/"])
      expect(await send(address, "GET", path, { anonymous: true })).toMatchObject({ status: 401 });
    const refused = await send(address, "GET", "/v1/sandboxes/a/exec", { anonymous: true, headers: upgrade });
    expect(refused.status).toBe(401);
    expect(problemOf(refused).code).toBe("unauthenticated");
  });

  test.each([
    "",
    "Bearer",
    "Bearer ",
    `Basic ${token}`,
    `Bearer ${token}x`,
    `Bearer ${token.slice(1)}`,
    token,
  ])("%j does not authenticate", async (authorization) => {
    const address = await listening();
    const answer = await send(address, "GET", "/v1/openapi.json", { headers: { authorization } });
    expect(answer.status).toBe(401);
    expect(answer.headers["www-authenticate"]).toBe("Bearer");
    expect(answer.headers["content-type"]).toContain("application/problem+json");
  });
});

describe("requests", () => {
  const bodies: [string, string, string][] = [
    ["no JSON", "{", "the request body is not valid JSON"],
    ["a wrong value", '{"dryRun":"maybe"}', "dryRun: invalid input: expected boolean, received string"],
    ["an unknown field", '{"dryRum":true}', "dryRum: unknown field"],
    ["an unknown field further in", '{"filter":{"colour":"red"}}', "filter.colour: unknown field"],
    [
      "several mistakes",
      '{"idleFor":-1,"x":1}',
      "idleFor: too small: expected number to be >=0 (and 1 more)",
    ],
    ["an array", "[]", "body: invalid input: expected object, received array"],
  ];
  test.each(bodies)("a body with %s is refused in one sentence", async (_, body, title) => {
    const address = await listening((server) => server.handle("reclaim", async () => nothing));
    const answer = await send(address, "POST", "/v1/reclaim", { body });
    expect(answer.status).toBe(400);
    expect(problemOf(answer)).toMatchObject({ code: "invalid_argument", title });
  });

  test("a body that is no JSON by its type is refused", async () => {
    const address = await listening((server) => server.handle("reclaim", async () => nothing));
    const answer = await send(address, "POST", "/v1/reclaim", {
      body: "a=b",
      headers: { "content-type": "text/plain" },
    });
    expect(problemOf(answer)).toMatchObject({ code: "invalid_argument", status: 400 });
  });

  test("no body means an empty one", async () => {
    const address = await listening((server) =>
      server.handle("reclaim", async ({ body }) => ({ ...nothing, memoryBytes: body.idleFor })),
    );
    expect((await send(address, "POST", "/v1/reclaim")).status).toBe(200);
    expect((await send(address, "POST", "/v1/reclaim", { body: "" })).status).toBe(200);
  });

  test("a body beyond the limit is refused, whether announced or not", async () => {
    const address = await listening((server) => server.handle("reclaim", async () => nothing));
    const body = JSON.stringify("x".repeat(maxBodyBytes));
    expect(problemOf(await send(address, "POST", "/v1/reclaim", { body })).code).toBe("body_too_large");
    const chunked = { "transfer-encoding": "chunked" };
    const answer = await send(address, "POST", "/v1/reclaim", { body, headers: chunked });
    expect(problemOf(answer)).toMatchObject({ code: "body_too_large", status: 413 });
  });

  test("queries are read by their schema: lists, numbers, truth values", async () => {
    const seen: unknown[] = [];
    const address = await listening((server) =>
      server.handle("listSandboxes", async ({ query }) => {
        seen.push(query);
        return { items: [] };
      }),
    );
    await send(
      address,
      "GET",
      "/v1/sandboxes?state=running,paused&state=lost&label=a%3Db,c&limit=5&all=true&usage=0",
    );
    await send(address, "GET", "/v1/sandboxes");
    expect(seen).toEqual([
      { state: ["running", "paused", "lost"], label: ["a=b,c"], limit: 5, all: true, usage: false },
      { limit: 1000, usage: false },
    ]);
  });

  test.each([
    ["limit=many", "limit: invalid input: expected number, received string"],
    ["limit=1&limit=2", "limit: invalid input: expected number, received array"],
    ["all=perhaps", "all: invalid input: expected boolean, received string"],
    ["state=asleep", "state.0: invalid option"],
    ["colour=red", "colour: unknown query parameter"],
  ])("the query %s is refused with the reason", async (query, title) => {
    const address = await listening((server) => server.handle("listSandboxes", async () => ({ items: [] })));
    const answer = await send(address, "GET", `/v1/sandboxes?${query}`);
    expect(answer.status).toBe(400);
    expect(problemOf(answer).title).toContain(title);
  });

  test("a route without a query takes none", async () => {
    const address = await listening();
    expect(problemOf(await send(address, "GET", "/v1/version?x=1", {})).title).toBe(
      "x: unknown query parameter",
    );
  });

  test("a path nobody serves is not found; another method is not allowed, and the right ones are named", async () => {
    const address = await listening((server) =>
      server.handle("getSandbox", async () => Promise.reject(new Error())),
    );
    expect(problemOf(await send(address, "GET", "/v1/nothing"))).toMatchObject({
      code: "not_found",
      status: 404,
    });
    const answer = await send(address, "PUT", "/v1/sandboxes/abc");
    expect(answer.headers.allow).toBe("GET");
    expect(problemOf(answer)).toMatchObject({ code: "method_not_allowed", status: 405 });
  });

  test.each(["/v1/sandboxes/%zz", "/v1/sandboxes/%00", "/v1/sandboxes/..%2f..", "/v1/sandboxes/A_B"])(
    "%s is a bad reference",
    async (path) => {
      const address = await listening((server) =>
        server.handle("getSandbox", async () => Promise.reject(new Error("reached"))),
      );
      expect(problemOf(await send(address, "GET", path))).toMatchObject({ code: "invalid_argument" });
    },
  );
});

describe("answers", () => {
  test("an error carries code, details, causes and when to come back", async () => {
    const address = await listening((server) =>
      server.handle("nodeStatus", async () => {
        const details = { refusals: ["n1"] };
        throw new DSecError("no_capacity", "no room", {
          retryAfterMs: 1200,
          details,
          cause: new Error("full"),
        });
      }),
    );
    const answer = await send(address, "GET", "/v1/node");
    expect(answer.status).toBe(503);
    expect(answer.headers["retry-after"]).toBe("2");
    expect(problemOf(answer)).toMatchObject({
      code: "no_capacity",
      retryable: true,
      retryAfterMs: 1200,
      details: { refusals: ["n1"] },
      chain: ["full"],
    });
  });

  test("what nobody expected is an internal error", async () => {
    const address = await listening((server) =>
      server.handle("nodeStatus", async () => Promise.reject(new TypeError("undefined is not a function"))),
    );
    expect(problemOf(await send(address, "GET", "/v1/node"))).toMatchObject({
      code: "internal",
      status: 500,
    });
  });

  test("lines are streamed as they come, and end when the server closes", async () => {
    const server = newServer();
    const sent = Promise.withResolvers<void>();
    server.handle("watch", async ({ signal }) =>
      (async function* () {
        yield { type: "ping" } satisfies WatchEvent;
        sent.resolve();
        if (!signal.aborted) await once(signal, "abort");
      })(),
    );
    const address = await server.listen(`unix:${join(await temporaryDir(), "a.sock")}`);
    const lines = await newClient(address).lines<WatchEvent>("watch");
    expect((await lines.next()).value).toEqual({ type: "ping" });
    await sent.promise;
    await server.close();
    expect(await lines.next()).toEqual({ done: true, value: undefined });
  });

  test("a stream that fails is cut, never ended", async () => {
    const address = await listening((server) =>
      server.handle("watch", async () =>
        (async function* () {
          yield { type: "ping" } satisfies WatchEvent;
          throw new Error("the source broke");
        })(),
      ),
    );
    const lines = await newClient(address).lines<WatchEvent>("watch");
    const drain = async (): Promise<void> => {
      for await (const line of lines) expect(line.type).toBe("ping");
    };
    await expect(drain()).rejects.toMatchObject({ code: "connection_lost" });
  });

  test("a client that reads slowly slows the source down", async () => {
    let produced = 0;
    const id = "x".repeat(10_000);
    const address = await listening((server) =>
      server.handle("watch", async ({ signal }) =>
        (async function* () {
          for (; !signal.aborted; produced += 1)
            yield { type: "removed", cursor: "c", id } satisfies WatchEvent;
        })(),
      ),
    );
    const lines = await newClient(address).lines<WatchEvent>("watch");
    await lines.next();
    let before = -1;
    while (before !== produced) {
      before = produced;
      await send(address, "GET", "/v1/version");
    }
    // what the buffers of both ends and the kernel hold, far from endless
    expect(produced).toBeLessThan(1000);
    await lines.return();
  });

  test("the handler's signal aborts when the client goes away", async () => {
    const aborted = Promise.withResolvers<unknown>();
    const begun = Promise.withResolvers<void>();
    const address = await listening((server) =>
      server.handle("getSandbox", async ({ signal }) => {
        signal.addEventListener("abort", () => aborted.resolve(signal.reason));
        begun.resolve();
        return new Promise<Sandbox>(() => undefined);
      }),
    );
    const controller = new AbortController();
    const call = newClient(address).json("getSandbox", { params: { ref: "abc" }, signal: controller.signal });
    await begun.promise;
    controller.abort();
    await expect(call).rejects.toMatchObject({ code: "cancelled", ambiguous: false });
    expect(await aborted.promise).toMatchObject({ code: "cancelled" });
  });

  test("the interface describes itself", async () => {
    const address = await listening((server) => {
      server.handle("listSandboxes", async () => ({ items: [] }));
      server.handle("removeSandbox", async () => undefined);
      server.handleUpgrade("exec", () => undefined);
    });
    const document = JSON.parse((await send(address, "GET", "/v1/openapi.json")).text) as {
      paths: Record<string, Record<string, { operationId: string; parameters?: { name: string }[] }>>;
    };
    expect(Object.keys(document.paths).toSorted()).toEqual([
      "/v1/sandboxes",
      "/v1/sandboxes/{ref}",
      "/v1/sandboxes/{ref}/exec",
      "/v1/version",
    ]);
    expect(document.paths["/v1/sandboxes"]?.["get"]?.parameters?.map(({ name }) => name)).toContain("label");
  });
});

describe("upgrades", () => {
  test("go to the route's owner with the path's parameters", async () => {
    const address = await listening((server) =>
      server.handleUpgrade("exec", ({ socket, params }) => {
        socket.end(`HTTP/1.1 418 ${params["ref"]}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
      }),
    );
    const headers = { connection: "upgrade", upgrade: "websocket" };
    expect((await send(address, "GET", "/v1/sandboxes/abc/exec", { headers })).status).toBe(418);
  });

  test("an owner's error before the upgrade is the answer", async () => {
    const address = await listening((server) =>
      server.handleUpgrade("exec", async () => {
        throw new DSecError("sandbox_not_running", "it is stopped");
      }),
    );
    const headers = { connection: "upgrade", upgrade: "websocket" };
    const answer = await send(address, "GET", "/v1/sandboxes/abc/exec", { headers });
    expect(problemOf(answer)).toMatchObject({ code: "sandbox_not_running", status: 409 });
    expect(problemOf(await send(address, "GET", "/v1/version", { headers })).code).toBe("not_found");
  });

  test("a plain request to an upgrade route is told so", async () => {
    const address = await listening((server) => server.handleUpgrade("exec", () => undefined));
    const answer = await send(address, "GET", "/v1/sandboxes/abc/exec");
    expect(problemOf(answer).title).toContain("upgrade to WebSocket only");
  });

  test("open ones are cut when the server closes", async () => {
    const server = newServer();
    const opened = Promise.withResolvers<void>();
    server.handleUpgrade("exec", ({ socket }) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\n\r\n");
      opened.resolve();
    });
    const address = new URL(await server.listen("http://127.0.0.1:0"));
    const socket = connect({ port: Number(address.port), host: address.hostname, allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => undefined).resume();
    socket.write(
      `GET /v1/sandboxes/a/exec HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${token}\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n`,
    );
    await opened.promise;
    expect(server.upgraded).toBe(1);
    await server.close();
    expect(server.upgraded).toBe(0);
  });
});
