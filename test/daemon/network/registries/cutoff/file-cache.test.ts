import { readdir } from "node:fs/promises";
import { createServer, get, type IncomingMessage, type ServerResponse } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import {
  type CachedFile,
  FileCache,
} from "../../../../../src/daemon/network/registries/cutoff/file-cache.ts";
import { temporaryDir } from "../../../daemon-fixture.ts";

/** A server whose answers the test writes. */
async function scripted() {
  const responses: ServerResponse[] = [];
  const server = createServer((request, response) => {
    const length = request.url?.slice(1) ?? "";
    response.writeHead(200, length === "" ? {} : { "content-length": length });
    response.flushHeaders();
    responses.push(response);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  const fetch = async (length: number): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const request = get({ host: "127.0.0.1", port, path: `/${length}`, agent: false });
      request.on("response", resolve).on("error", reject);
    });
  return { responses, fetch };
}

async function read(file: CachedFile): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of file.content()) pieces.push(piece);
  } finally {
    await file.close();
  }
  return Buffer.concat(pieces).toString("utf8");
}

test("a file is read by several while it comes, is fetched once, and is there after a restart", async () => {
  const directory = await temporaryDir();
  const cache = new FileCache(directory, 1000);
  const { responses, fetch } = await scripted();
  const files = await Promise.all([1, 2, 3].map(async () => cache.get("a", () => fetch(10))));
  expect(files.map(({ length }) => length)).toEqual([10, 10, 10]);
  const [first] = files;
  const pieces = first?.content();
  responses[0]?.write("01234");
  expect(String((await pieces?.next())?.value)).toBe("01234");
  responses[0]?.end("56789");
  expect(String((await pieces?.next())?.value)).toBe("56789");
  await first?.close();
  expect(await Promise.all(files.slice(1).map(read))).toEqual(["0123456789", "0123456789"]);
  expect(responses).toHaveLength(1);
  await expect.poll(async () => (await readdir(directory)).map((name) => name.length)).toEqual([64]);

  const later = new FileCache(directory, 1000);
  const again = await later.get("a", () => Promise.reject(new Error("it is there")));
  expect(await read(again)).toBe("0123456789");
});

test("a file that breaks off is an error for all who read it, and is fetched anew", async () => {
  const directory = await temporaryDir();
  const cache = new FileCache(directory, 1000);
  const { responses, fetch } = await scripted();
  const broken = await Promise.all([1, 2].map(async () => cache.get("a", () => fetch(10))));
  responses[0]?.write("01234");
  responses[0]?.destroy();
  const outcomes = await Promise.allSettled(broken.map(read));
  expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await expect.poll(async () => readdir(directory)).toEqual([]);
  const again = await cache.get("a", () => fetch(2));
  responses[1]?.end("ok");
  expect(await read(again)).toBe("ok");
});

test("the least recently used go first, and one that is larger than all room is refused", async () => {
  const cache = new FileCache(await temporaryDir(), 10);
  const { responses, fetch } = await scripted();
  let asked = 0;
  const fill = async (name: string, content: string): Promise<string> => {
    const file = await cache.get(name, async () => {
      asked += 1;
      return fetch(content.length);
    });
    responses.at(-1)?.end(content);
    return read(file);
  };
  expect(await fill("a", "1234")).toBe("1234");
  expect(await fill("b", "5678")).toBe("5678");
  expect(await fill("a", "1234")).toBe("1234");
  expect(asked).toBe(2);
  expect(await fill("c", "9999")).toBe("9999");
  expect(await fill("a", "1234")).toBe("1234");
  expect(asked).toBe(3);
  expect(await fill("b", "5678")).toBe("5678");
  expect(asked).toBe(4);
  await expect(fill("d", "01234567890")).rejects.toMatchObject({ code: "disk_full" });
});
