import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { expect, test, vi } from "vitest";
import type { Guest } from "../../src/agent/guest.ts";
import { MIB, execSpec, sh } from "./fixture.ts";
import type { Suite } from "./suite.ts";

/** Starts a service that goes on; resolves when it accepts connections. */
async function serve(guest: Guest, port: number, argv: readonly string[]): Promise<void> {
  const service = await guest.exec(execSpec(argv), () => undefined);
  service.exit.catch(() => undefined);
  await vi.waitUntil(
    async () => {
      const stream = await guest.dial(port).catch(() => undefined);
      return stream?.destroy() !== undefined;
    },
    { timeout: 20_000 },
  );
}

async function bytesOf(stream: Duplex): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Connections to services inside. */
export function portSentences({ fixture }: Suite): void {
  test("a service on the sandbox's loopback only is reached", async () => {
    const { guest } = await fixture().start();
    await sh(guest, "mkdir /tmp/www && echo hello > /tmp/www/index.html");
    await serve(guest, 8080, ["httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/tmp/www"]);
    const stream = await guest.dial(8080);
    stream.end("GET /index.html HTTP/1.0\r\n\r\n");
    expect((await bytesOf(stream)).toString()).toMatch(/^HTTP\/1\.[01] 200 [^]*\r\n\r\nhello\n$/);
  });

  test("bytes pass both ways at once, byte for byte", async () => {
    const { guest } = await fixture().start();
    await serve(guest, 7000, ["nc", "-ll", "-p", "7000", "-e", "cat"]);
    const sent = randomBytes(4 * MIB);
    const stream = await guest.dial(7000);
    stream.end(sent);
    expect((await bytesOf(stream)).equals(sent)).toBe(true);
  });

  test("the end of one direction leaves the other open", async () => {
    const { guest } = await fixture().start();
    await serve(guest, 7000, ["nc", "-ll", "-p", "7000", "-e", "sha256sum"]);
    const sent = randomBytes(MIB);
    const stream = await guest.dial(7000);
    stream.end(sent);
    expect((await bytesOf(stream)).toString()).toContain(createHash("sha256").update(sent).digest("hex"));
  });

  test("a port that nobody listens on is refused by name", async () => {
    const { guest } = await fixture().start();
    await expect(guest.dial(9)).rejects.toMatchObject({ code: "port_refused" });
  });

  test("connections that are open at once do not mix", async () => {
    const { guest } = await fixture().start();
    await serve(guest, 7000, ["nc", "-ll", "-p", "7000", "-e", "cat"]);
    const streams: Duplex[] = [];
    // one after the other: the service's queue of connections to be accepted is short
    for (let index = 0; index < 30; index += 1) {
      const stream = await guest.dial(7000);
      stream.write(`connection ${index}`);
      expect(String((await once(stream, "data"))[0])).toBe(`connection ${index}`);
      streams.push(stream);
    }
    for (const [index, stream] of streams.entries()) stream.end(`, its end ${index}`);
    const ends = await Promise.all(streams.map(async (stream) => (await bytesOf(stream)).toString()));
    expect(ends).toEqual(streams.map((_, index) => `, its end ${index}`));
  });

  test("connections end with the sandbox, in an error", async () => {
    const sandbox = await fixture().start();
    await serve(sandbox.guest, 7000, ["nc", "-ll", "-p", "7000", "-e", "cat"]);
    const stream = await sandbox.guest.dial(7000);
    const ended = once(stream, "error");
    await fixture().destroy(sandbox);
    expect((await ended)[0]).toMatchObject({ code: "agent_lost" });
  });
}
