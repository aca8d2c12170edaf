import { once } from "node:events";
import { get, type IncomingMessage, request } from "node:http";
import { WebSocket } from "ws";
import type { Sandbox } from "../../src/sdk/index.ts";
import { expectBytes, expectEqual } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { pages, ports, type World } from "./world.ts";

interface Answer {
  readonly status: number | undefined;
  readonly type: string | undefined;
  readonly body: Buffer;
}

async function page({ sandbox, random }: World): Promise<void> {
  const [name, content] = random.pick([...pages]);
  const response = await sandbox.fetch(ports.http, `/${name}`);
  expectEqual(`status of ${name}`, response.status, 200);
  expectBytes(name, Buffer.from(await response.arrayBuffer()), content);
}

async function noPage({ sandbox }: World): Promise<void> {
  const response = await sandbox.fetch(ports.http, "/no/such/page");
  expectEqual("status of no page", response.status, 404);
  await response.arrayBuffer();
}

/** The coordinator's own route, for whoever has no more than a token for a port. */
async function pageByToken({ client, sandbox, random }: World): Promise<void> {
  const [name, content] = random.pick([...pages]);
  const { path, token } = await sandbox.createPortToken(ports.http);
  const headers = { authorization: `Bearer ${token}` };
  const answer = await getOverSocket(client.address, `${path}/${name}`, headers);
  expectEqual(`status of ${name}, by token`, answer.status, 200);
  expectBytes(`${name}, by token`, answer.body, content);
  const other = { authorization: `Bearer ${token}x` };
  const refused = await getOverSocket(client.address, `${path}/${name}`, other);
  expectEqual("status with another token", refused.status, 401);
}

async function post({ client, sandbox, random }: World): Promise<void> {
  const sent = random.bytes(random.between(1, random.chance(0.1) ? 200_000 : 4000));
  if (random.chance(0.5)) {
    const response = await sandbox.fetch(ports.http, "/cgi-bin/echo", { method: "POST", body: sent });
    expectEqual("status of a POST", response.status, 200);
    expectBytes("a body that was posted", Buffer.from(await response.arrayBuffer()), sent);
    return;
  }
  const { path, token } = await sandbox.createPortToken(ports.http);
  const outgoing = request({
    socketPath: socketOf(client.address),
    path: `${path}cgi-bin/echo`,
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-length": sent.length },
    agent: false,
  });
  outgoing.end(sent);
  const answer = await answerOf(outgoing);
  expectEqual("status of a POST by the route", answer.status, 200);
  expectBytes("a body that was posted by the route", answer.body, sent);
}

/** Server-sent events, one after the other, through a forwarded port or by the route. */
async function events({ client, sandbox, random }: World): Promise<void> {
  const count = random.between(1, 5);
  const target = `cgi-bin/events?${count}`;
  const wanted = Array.from({ length: count }, (_, index) => `data: ${index + 1}\n\n`).join("");
  const answer = random.chance(0.5) ? await overForward(sandbox, target) : await overRoute();
  expectEqual("events", [answer.status, answer.type], [200, "text/event-stream"]);
  expectBytes("a stream of events", answer.body, Buffer.from(wanted));

  async function overRoute(): Promise<Answer> {
    const { path, token } = await sandbox.createPortToken(ports.http);
    return getOverSocket(client.address, path + target, { authorization: `Bearer ${token}` });
  }
}

async function overForward(sandbox: Sandbox, target: string): Promise<Answer> {
  await using forward = await sandbox.forward({ remote: ports.http });
  const { host, port } = forward;
  return await answerOf(get({ host, port, path: `/${target}`, agent: false }));
}

async function webSocket({ client, sandbox, random }: World): Promise<void> {
  const text = `t${random.text()}`;
  if (random.chance(0.5)) {
    await using forward = await sandbox.forward({ remote: ports.webSocket });
    const url = `ws://${forward.host}:${forward.port}/`;
    expectEqual("a WebSocket through a forward", await echoed(new WebSocket(url), text), text);
    return;
  }
  const { token, path } = await sandbox.createPortToken(ports.webSocket);
  const url = `ws+unix:${socketOf(client.address)}:${path}?dsec_token=${token}`;
  expectEqual("a WebSocket by the route", await echoed(new WebSocket(url), text), text);
}

async function echoed(socket: WebSocket, text: string): Promise<string> {
  await once(socket, "open");
  socket.send(text);
  const [answer] = (await once(socket, "message")) as [Buffer];
  const closed = once(socket, "close");
  socket.terminate();
  await closed;
  return answer.toString();
}

async function getOverSocket(
  address: string,
  path: string,
  headers: Readonly<Record<string, string>>,
): Promise<Answer> {
  return answerOf(get({ socketPath: socketOf(address), path, headers, agent: false }));
}

async function answerOf(outgoing: ReturnType<typeof request>): Promise<Answer> {
  const [response] = (await once(outgoing, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  const { statusCode: status, headers } = response;
  return { status, type: headers["content-type"], body: Buffer.concat(chunks) };
}

function socketOf(address: string): string {
  return address.slice("unix:".length);
}

export const httpOperations: readonly Operation[] = [
  { name: "http: page", weight: 6, run: page },
  { name: "http: page that is not there", weight: 1, run: noPage },
  { name: "http: page by the route, with a token", weight: 2, run: pageByToken },
  { name: "http: POST to a program", weight: 2, run: post },
  { name: "http: server-sent events", weight: 2, run: events },
  { name: "http: WebSocket", weight: 2, run: webSocket },
];
