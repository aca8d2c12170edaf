import { createHash, randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { crc32 } from "node:zlib";
import { beforeEach, describe, expect, test, vi } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { type RunningAgent, shareAgent } from "./agent-fixture.ts";
import { inParts, tarOf } from "../protocol/tar-fixture.ts";
import { childrenOf } from "./process-state.ts";

const POLL = { timeout: 20_000, interval: 10 };
let agent: RunningAgent;
let connection: AgentConnection;
let root: string;

shareAgent((...made) => {
  [agent, connection] = made;
});

beforeEach(() => {
  root = agent.newDirectory();
});

describe("the content of an upload", () => {
  test("is put in its place when the hash that comes with its end agrees, and not otherwise", async () => {
    const content = randomBytes(400_000);
    const hash = createHash("sha256").update(content).digest();
    const mtimeMs = 1_600_000_000_123;
    await connection.files.write(`${root}/f`, inParts(content), {
      checkAtEnd: { kind: "sha256", value: () => hash },
      mtimeMs,
    });
    expect(readFileSync(`${root}/f`).equals(content)).toBe(true);
    expect(statSync(`${root}/f`).mtimeMs).toBe(mtimeMs);
    const wrong = connection.files.write(`${root}/g`, inParts(content), {
      checkAtEnd: { kind: "sha256", value: () => randomBytes(32) },
    });
    await expect(wrong).rejects.toMatchObject({ code: "file_error" });
    expect(existsSync(`${root}/g`)).toBe(false);
    const bytes = tarOf(["x", { content: "x" }]);
    const other = connection.files.extract(root, inParts(bytes), {
      owners: true,
      checkAtEnd: { kind: "sha256", value: () => hash },
    });
    await expect(other).rejects.toMatchObject({ code: "file_error" });
    await connection.files.extract(root, inParts(bytes), {
      owners: true,
      checkAtEnd: { kind: "sha256", value: () => createHash("sha256").update(bytes).digest() },
    });
  });

  test.for([0, 1, 4096, 262_144, 1_048_577, 3_000_003])(
    "of %i bytes is what was sent where it is written past the page cache, holes and last bytes included",
    async (length) => {
      const content = randomBytes(length);
      content.subarray(200_000, 500_000).fill(0);
      await connection.files.write(`${root}/f`, inParts(content, 70_000), { direct: true, size: length });
      expect(readFileSync(`${root}/f`).equals(content)).toBe(true);
    },
  );

  test.for([0, 1, 15, 16, 63, 64, 65, 127, 128, 1000, 300_001])(
    "of %i bytes is checked by its sum",
    async (length) => {
      const content = randomBytes(length);
      const sum = Buffer.alloc(4);
      sum.writeUInt32LE(crc32(content));
      const check = (value: Buffer) => ({ checkAtEnd: { kind: "crc32", value: () => value } }) as const;
      await connection.files.write(`${root}/f`, inParts(content), check(sum));
      expect(readFileSync(`${root}/f`).equals(content)).toBe(true);
      const wrong = Buffer.from(sum.map((byte) => byte ^ 1));
      const refused = connection.files.write(`${root}/g`, inParts(content), check(wrong));
      await expect(refused).rejects.toMatchObject({ code: "file_error" });
      expect(readdirSync(root)).toEqual(["f"]);
    },
  );

  test("with holes takes no room for them", async () => {
    const content = Buffer.concat([Buffer.alloc(9_000_000), Buffer.from("middle"), Buffer.alloc(9_000_000)]);
    await connection.files.write(`${root}/f`, inParts(content, 65_000), { size: content.length });
    expect(readFileSync(`${root}/f`).equals(content)).toBe(true);
    expect(statSync(`${root}/f`).blocks).toBeLessThan(64);
  });

  test.for(["write", "extract"] as const)(
    "an abort in the middle ends it, and leaves nothing: %s",
    async (how) => {
      const controller = new AbortController();
      const gate = Promise.withResolvers<void>();
      async function* content(): AsyncGenerator<Buffer> {
        yield tarOf(["f", { content: "x".repeat(500_000) }]).subarray(0, 300_000);
        await gate.promise;
      }
      const { files } = connection;
      const { signal } = controller;
      const writing =
        how === "write"
          ? files.write(`${root}/f`, content(), { signal })
          : files.extract(root, content(), { owners: true, signal });
      const failed = writing.catch((error: unknown) => error);
      await vi.waitFor(() => expect(readdirSync(root)).toMatchObject([/^\.dsec-/]), POLL);
      controller.abort(new Error("given up"));
      expect(await failed).toMatchObject({ message: "given up" });
      await vi.waitFor(() => expect(readdirSync(root)).toEqual([]), POLL);
      await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
      gate.resolve();
    },
  );

  test("an abort ends a download", async () => {
    writeFileSync(`${root}/f`, Buffer.alloc(5_000_000, 1));
    const controller = new AbortController();
    const reading = connection.files.read(`${root}/f`, {}, () => new Promise<void>(() => undefined), {
      begun: () => controller.abort(new Error("given up")),
      signal: controller.signal,
    });
    await expect(reading).rejects.toThrow("given up");
    await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  });
});
