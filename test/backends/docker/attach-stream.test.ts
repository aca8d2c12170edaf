import { randomInt } from "node:crypto";
import { duplexPair, type Duplex } from "node:stream";
import { expect, test } from "vitest";
import { AttachStream } from "../../../src/backends/container/docker/attach-stream.ts";

function open(): { readonly attached: AttachStream; readonly docker: Duplex } {
  const [ours, docker] = duplexPair();
  return { attached: new AttachStream(ours), docker };
}

function piece(stream: number, content: string | Buffer): Buffer {
  const bytes = Buffer.from(content);
  const header = Buffer.alloc(8);
  header.writeUInt8(stream, 0);
  header.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([header, bytes]);
}

async function readAll(stream: AttachStream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

test("stdout is passed on and stderr kept apart, however the bytes are cut up", async () => {
  const content = Buffer.from(Array.from({ length: 20_000 }, (_, index) => index % 251));
  const bytes = Buffer.concat([
    piece(1, content.subarray(0, 1)),
    piece(2, "some words "),
    piece(1, ""),
    piece(1, content.subarray(1, 15_000)),
    piece(2, "and more"),
    piece(1, content.subarray(15_000)),
  ]);
  for (let round = 0; round < 20; round += 1) {
    const { attached, docker } = open();
    const received = readAll(attached);
    for (let at = 0; at < bytes.length;) {
      const end = at + randomInt(1, 3000);
      docker.write(bytes.subarray(at, end));
      at = end;
    }
    docker.end();
    expect((await received).equals(content)).toBe(true);
    expect(attached.stderr).toBe("some words and more");
  }
});

test("a piece cut off by the end of the stream is passed on as far as it came", async () => {
  const { attached, docker } = open();
  docker.end(piece(1, "abcdef").subarray(0, 10));
  expect((await readAll(attached)).toString()).toBe("ab");
});

test("a piece that claims four gigabytes takes no memory", async () => {
  const { attached, docker } = open();
  const header = Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]);
  docker.end(Buffer.concat([header, Buffer.from("what there is")]));
  expect((await readAll(attached)).toString()).toBe("what there is");
});

test("an output that does not exist ends the stream with an error", async () => {
  const { attached, docker } = open();
  docker.write(piece(7, "?"));
  await expect(readAll(attached)).rejects.toThrow("output 7");
});

test("of a talkative stderr only the end is kept", async () => {
  const { attached, docker } = open();
  for (let round = 0; round < 100; round += 1) docker.write(piece(2, "x".repeat(1000)));
  docker.end(piece(2, "the end"));
  await readAll(attached);
  expect(attached.stderr).toMatch(/^x+the end$/);
  expect(attached.stderr.length).toBe(2048);
});

test("a reader that does not read makes the other side wait", async () => {
  const { attached, docker } = open();
  let written = 0;
  while (docker.write(piece(1, Buffer.alloc(60_000)))) written += 60_000;
  expect(written).toBeLessThan(1_000_000);
  expect(attached.readableLength).toBeLessThan(1_000_000);
  const received = readAll(attached);
  docker.end();
  expect((await received).length).toBe(written + 60_000);
});

test("what is written arrives as it is, and the end of writing is not passed on", async () => {
  const { attached, docker } = open();
  let received = "";
  docker.on("data", (chunk: Buffer) => (received += chunk.toString()));
  attached.cork();
  attached.write("one ");
  attached.write("two ");
  attached.uncork();
  await new Promise<void>((resolve) => attached.end("three", resolve));
  expect(received).toBe("one two three");
  expect(docker.readableEnded).toBe(false);
});

test("destroying it closes the connection", () => {
  const [connection] = duplexPair();
  new AttachStream(connection).destroy();
  expect(connection.destroyed).toBe(true);
});
