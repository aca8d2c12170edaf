import { once } from "node:events";
import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { expectBytes, expectRefusal } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { ports, type World } from "./world.ts";

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
  { name: "ports: refusals", weight: 2, run: refused },
];
