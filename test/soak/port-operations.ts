import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { expectBytes, expectEqual, expectRefusal } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { pages, ports, type World } from "./world.ts";

async function echo({ sandbox, random }: World): Promise<void> {
  const sent = random.bytes(random.between(1, random.chance(0.2) ? 500_000 : 5000));
  expectBytes("an echo", await exchange(await sandbox.connect(ports.echo), sent), sent);
}

async function manyEchoes({ sandbox, random }: World): Promise<void> {
  const sent = Array.from({ length: random.between(2, 6) }, () => random.bytes(random.between(1, 20_000)));
  const got = await Promise.all(
    sent.map(async (bytes) => exchange(await sandbox.connect(ports.echo), bytes)),
  );
  for (const [index, bytes] of sent.entries())
    expectBytes("one of several echoes", got[index] ?? Buffer.alloc(0), bytes);
}

async function forwarded({ sandbox, random }: World): Promise<void> {
  await using forward = await sandbox.forward({ remote: ports.echo });
  const sent = random.bytes(random.between(1, 50_000));
  const socket = connect({ port: forward.port, host: forward.host, allowHalfOpen: true });
  await once(socket, "connect");
  expectBytes("an echo through a forward", await exchange(socket, sent), sent);
}

/** Whoever goes away in the middle does not disturb the others. */
async function dropped({ sandbox, random }: World): Promise<void> {
  const stream = await sandbox.connect(ports.echo);
  stream.on("error", () => undefined);
  stream.write(random.bytes(1000));
  stream.destroy();
}

async function page({ sandbox, random }: World): Promise<void> {
  const [name, content] = random.pick([...pages]);
  const response = await sandbox.fetch(ports.http, `/${name}`);
  expectEqual(`status of ${name}`, response.status, 200);
  expectBytes(name, Buffer.from(await response.arrayBuffer()), content);
}

/** The coordinator's own route, for whoever has no more than a token for a port. */
async function pageByToken({ client, sandbox, random }: World): Promise<void> {
  const [name, content] = random.pick([...pages]);
  const { path, token } = await sandbox.createPortToken(ports.http);
  const answer = await getOverSocket(client.address, `${path}/${name}`, token);
  expectEqual(`status of ${name}, by token`, answer.status, 200);
  expectBytes(`${name}, by token`, answer.body, content);
  const other = await getOverSocket(client.address, `${path}/${name}`, `${token}x`);
  expectEqual("status with another token", other.status, 401);
}

async function getOverSocket(
  address: string,
  path: string,
  token: string,
): Promise<{ readonly status: number | undefined; readonly body: Buffer }> {
  const headers = { authorization: `Bearer ${token}` };
  const request = get({ socketPath: address.slice("unix:".length), path, headers, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
  return { status: response.statusCode, body: Buffer.concat(chunks) };
}

async function noPage({ sandbox }: World): Promise<void> {
  const response = await sandbox.fetch(ports.http, "/no/such/page");
  expectEqual("status of no page", response.status, 404);
  await response.arrayBuffer();
}

async function refused({ sandbox }: World): Promise<void> {
  await expectRefusal("nobody's port", sandbox.connect(ports.nobody), "port_refused");
  await expectRefusal("nobody's pages", sandbox.fetch(ports.nobody, "/"), "port_refused");
  await expectRefusal("no port", sandbox.connect(70_000), "invalid_argument");
}

/** Sends all, ends, and reads to the other's end. */
async function exchange(stream: Duplex, sent: Buffer): Promise<Buffer> {
  stream.end(sent);
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export const portOperations: readonly Operation[] = [
  { name: "ports: echo, half-closed", weight: 6, run: echo },
  { name: "ports: several connections at once", weight: 3, run: manyEchoes },
  { name: "ports: forward", weight: 3, run: forwarded },
  { name: "ports: connection dropped", weight: 2, run: dropped },
  { name: "ports: HTTP page", weight: 6, run: page },
  { name: "ports: HTTP route with a token", weight: 2, run: pageByToken },
  { name: "ports: HTTP page that is not there", weight: 1, run: noPage },
  { name: "ports: refusals", weight: 2, run: refused },
];
