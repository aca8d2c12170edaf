/** The SDK against real processes in real containers, through coordinator and daemon. */
import { createHash, randomBytes } from "node:crypto";
import { pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";

const size = 10_000_000;

let fleet: Fleet;
let client: DSecClient;
let sandbox: Sandbox;

beforeAll(async () => {
  fleet = await startFleet();
  client = await fleet.client();
  sandbox = await client.runContainer({ image: "busybox", engine: "runc", memoryMb: 256 });
});

afterAll(async () => {
  await client?.close();
  await fleet?.[Symbol.asyncDispose]();
});

describe("10 MB of random bytes", () => {
  test("pass through pipes in both directions, with a reader that takes its time", async () => {
    const input = randomBytes(size);
    const hash = createHash("sha256");
    let received = 0;
    const { exitCode, stdoutBytes } = await sandbox.exec(["cat"], {
      stdin: input,
      async onStdout(bytes) {
        await new Promise(setImmediate);
        hash.update(bytes);
        received += bytes.length;
      },
    });
    expect({ exitCode, received, collected: stdoutBytes.length }).toEqual({
      exitCode: 0,
      received: size,
      collected: 0,
    });
    expect(hash.digest("hex")).toBe(sha256(input));
  });

  test("pass through a terminal in raw mode in both directions", async () => {
    const input = randomBytes(size);
    const script = `stty raw -echo; echo ready; head -c ${size}`;
    await using process = await sandbox.spawn(["/bin/sh", "-c", script], {
      stdin: true,
      tty: { rows: 24, cols: 80 },
    });
    const chunks = process.stdout[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    let output = Buffer.alloc(0);
    const read = async (): Promise<boolean> => {
      const { value, done } = await chunks.next();
      if (done !== true) output = Buffer.concat([output, value]);
      return done !== true;
    };
    while (!output.includes("ready\n") && (await read()));
    output = output.subarray(output.indexOf("ready\n") + "ready\n".length);
    const written = pipeline(Readable.from(chunksOf(input, 50_000)), process.stdin);
    while (output.length < size && (await read()));
    await written;
    expect(sha256(output)).toBe(sha256(input));
    expect(await process.exit).toMatchObject({ exitCode: 0 });
  });
});

describe("a terminal", () => {
  test("has the size it is given, also later", async () => {
    await using process = await sandbox.spawn(["/bin/sh", "-c", "stty size; read _; stty size"], {
      stdin: true,
      tty: { rows: 30, cols: 100 },
    });
    const chunks = process.stdout[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    let text = "";
    const until = async (wanted: string): Promise<void> => {
      while (!text.includes(wanted)) {
        const { value, done } = await chunks.next();
        if (done === true) throw new Error(`the terminal ended after ${JSON.stringify(text)}`);
        text += String(value);
      }
    };
    await until("30 100");
    process.resize(50, 200);
    process.stdin.write("\r");
    await until("50 200");
    expect(await process.exit).toMatchObject({ exitCode: 0 });
  });
});

describe("a client that goes away", () => {
  test("takes its command with it", async () => {
    const process = await sandbox.spawn(["sleep", "1234"]);
    const running = async (): Promise<boolean> => (await sandbox.exec(["ps"])).stdout.includes("sleep 1234");
    expect(await running()).toBe(true);
    process.disconnect();
    await expect.poll(running).toBe(false);
  });

  test("leaves a command that is to be kept, and its output", async () => {
    const process = await sandbox.spawn(
      ["/bin/sh", "-c", "mkfifo /tmp/go; echo begun; read line < /tmp/go; echo over"],
      {
        onDisconnect: "keep",
        record: true,
      },
    );
    process.disconnect();
    await sandbox.runShell("until [ -p /tmp/go ]; do sleep 0.05; done; echo > /tmp/go");
    const bytes: Buffer[] = [];
    for await (const line of sandbox.logs({ exec: process.execId, follow: true }))
      if (line.type === "output") bytes.push(Buffer.from(line.data, "base64"));
    expect(String(Buffer.concat(bytes))).toBe("begun\nover\n");
  });
});

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function* chunksOf(bytes: Buffer, length: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}
