/** What TLS clients say first, and what only an attacker says. */
import { once } from "node:events";
import { createServer } from "node:net";
import { connect } from "node:tls";

const extensionsLengthAt = (hello: Buffer): number => {
  // Record and handshake headers, version, random.
  let at = 5 + 4 + 2 + 32;
  at += 1 + hello.readUInt8(at);
  at += 2 + hello.readUInt16BE(at);
  return at + 1 + hello.readUInt8(at);
};

/** One record, as Node's own client sends it. */
export async function clientHello(serverName: string): Promise<Buffer> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("not a port");
  const accepted = once(server, "connection");
  const client = connect({ host: "127.0.0.1", port: address.port, servername: serverName });
  client.on("error", () => undefined);
  const [socket] = await accepted;
  const [hello] = await once(socket, "data");
  client.destroy();
  socket.destroy();
  server.close();
  return Buffer.from(hello);
}

/** With one more extension. */
export function withExtension(hello: Buffer, type: number, data: Buffer): Buffer {
  const header = Buffer.alloc(4);
  header.writeUInt16BE(type, 0);
  header.writeUInt16BE(data.length, 2);
  const longer = Buffer.concat([hello, header, data]);
  const added = header.length + data.length;
  const at = extensionsLengthAt(hello);
  longer.writeUInt16BE(longer.readUInt16BE(at) + added, at);
  longer.writeUInt16BE(longer.readUInt16BE(3) + added, 3);
  longer.writeUIntBE(longer.readUIntBE(6, 3) + added, 6, 3);
  return longer;
}

/** The same handshake message in two records. */
export function inTwoRecords(hello: Buffer, bytes: number): Buffer {
  const record = (part: Buffer) => {
    const header = Buffer.from(hello.subarray(0, 5));
    header.writeUInt16BE(part.length, 3);
    return Buffer.concat([header, part]);
  };
  const body = hello.subarray(5);
  return Buffer.concat([record(body.subarray(0, bytes)), record(body.subarray(bytes))]);
}

/** The data of a server name extension. */
export function serverNameData(...names: readonly string[]): Buffer {
  const entries = names.map((name) =>
    Buffer.concat([Buffer.from([0, name.length >> 8, name.length & 0xff]), Buffer.from(name)]),
  );
  const list = Buffer.concat(entries);
  return Buffer.concat([Buffer.from([list.length >> 8, list.length & 0xff]), list]);
}
