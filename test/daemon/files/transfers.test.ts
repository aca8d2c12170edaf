import { createHash, randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { crc32 } from "node:zlib";
import { describe, expect, test } from "vitest";
import { ManualClock } from "../manual-clock.ts";
import { TestDaemon } from "../daemon-fixture.ts";
import { codeOf, filesPath, RawTransfer } from "./raw-transfer.ts";

async function simulated(clock?: ManualClock) {
  const daemon = await TestDaemon.start({}, clock === undefined ? {} : { clock });
  const sandbox = await daemon.place();
  const names = async (path = "/tmp"): Promise<string[]> => {
    const call = { params: { ref: sandbox.id }, query: { path } };
    const list = await daemon.http.json<{ items: { name: string }[] }>("listFiles", call);
    return list.items.map(({ name }) => name);
  };
  return { daemon, id: sandbox.id, names };
}

const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

describe("an upload of a stranger", () => {
  test("needs nothing but a path; hash, size and mode may come in the query", async () => {
    const { daemon, id } = await simulated();
    const content = randomBytes(100_000);
    const query = { path: "/tmp/f", sha256: sha256(content), size: "100000", mode: "0640" };
    const put = new RawTransfer(daemon, "PUT", filesPath(id, query));
    put.request.end(content);
    expect(await put.answer).toMatchObject({ status: 200, body: Buffer.from('{"size":100000}') });
    const get = new RawTransfer(daemon, "GET", filesPath(id, { path: "/tmp/f", offset: "10", length: "5" }));
    get.request.end();
    const answer = await get.answer;
    expect(answer.body).toEqual(content.subarray(10, 15));
    expect(answer.headers).toMatchObject({
      "content-length": "5",
      "content-type": "application/octet-stream",
    });
    expect(JSON.parse(String(answer.headers["x-dsec-file"]))).toMatchObject({
      type: "file",
      mode: 0o640,
      size: 100_000,
    });
  });

  test.each([
    ["x-dsec-sha256", sha256(Buffer.from("content")), 200],
    ["x-dsec-sha256", sha256(Buffer.from("other")), 422],
    ["x-dsec-sha256", "abc", 400],
    ["x-dsec-crc32", crc32("content").toString(16).padStart(8, "0"), 200],
    ["x-dsec-crc32", "00000000", 422],
    ["x-dsec-crc32", "", 400],
  ])("may bring %s %s as a trailer: %i", async (name, value, status) => {
    const { daemon, id, names } = await simulated();
    const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }), { trailer: name });
    put.request.write("content");
    put.request.addTrailers({ [name]: value });
    put.request.end();
    expect(await put.answer).toMatchObject({ status });
    expect(await names()).toEqual(status === 200 ? ["f"] : []);
  });

  test("that announced a trailer and brings none is refused", async () => {
    const { daemon, id, names } = await simulated();
    const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }), {
      trailer: "x-dsec-crc32",
    });
    put.request.end("content");
    expect(codeOf(await put.answer)).toBe("invalid_argument");
    expect(await names()).toEqual([]);
  });

  test("that breaks off leaves nothing, whatever length it had claimed", async () => {
    const { daemon, id, names } = await simulated();
    for (const headers of [{}, { "content-length": String(2 ** 32) }]) {
      const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }), headers);
      put.request.write(Buffer.alloc(300_000));
      await expect.poll(() => put.request.writableLength).toBe(0);
      put.request.destroy();
      await expect(put.answer).rejects.toThrow(Error);
    }
    expect(await names()).toEqual([]);
    const again = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }));
    again.request.end("whole");
    expect((await again.answer).status).toBe(200);
  });

  test("that is refused reads why, also when it goes on sending", async () => {
    const { daemon, id } = await simulated();
    const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/no/such/f" }));
    for (let count = 0; count < 50; count += 1) put.request.write(Buffer.alloc(100_000));
    const answer = await put.answer;
    put.request.destroy();
    expect([answer.status, codeOf(answer)]).toEqual([422, "file_error"]);
  });

  test.each([
    [{ path: "relative" }, "path"],
    [{}, "path"],
    [{ path: "/a", pathBytes: "L2E=" }, "path"],
    [{ pathBytes: "YQ==" }, "pathBytes"],
    [{ path: "/a", mode: "999" }, "mode"],
    [{ path: "/a", size: "-1" }, "size"],
    [{ path: "/a", sha256: "xyz" }, "sha256"],
    [{ path: "/a", uid: "4294967295" }, "uid"],
    [{ path: "/a", nonsense: "1" }, "nonsense"],
  ])("%j is refused, and the field is named", async (query, field) => {
    const { daemon, id } = await simulated();
    const put = new RawTransfer(daemon, "PUT", filesPath(id, query));
    put.request.end("content");
    const answer = await put.answer;
    expect(answer.status).toBe(400);
    expect((JSON.parse(answer.body.toString()) as { title: string }).title).toMatch(
      new RegExp(`^${field}: `),
    );
  });
});

describe("a transfer of which nothing moves", () => {
  test("is given up by an upload's receiver, who says so and keeps nothing", async () => {
    const clock = new ManualClock();
    const { daemon, id, names } = await simulated(clock);
    const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }));
    put.request.write(Buffer.alloc(1000));
    const armed = clock.pending;
    await expect.poll(() => clock.pending).toBeGreaterThan(armed);
    clock.advance(59_000);
    put.request.write(Buffer.alloc(1000));
    const answered = put.answer.then(codeOf);
    await expect
      .poll(() => {
        clock.advance(61_000);
        return Promise.race([answered, Promise.resolve()]);
      })
      .toBe("transfer_stalled");
    put.request.destroy();
    expect(await names()).toEqual([]);
  });

  test("is not one whose receiver takes its time", async () => {
    const clock = new ManualClock();
    const { daemon, id } = await simulated(clock);
    const content = Buffer.alloc(5_000_000, 1);
    const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }));
    put.request.end(content);
    expect((await put.answer).status).toBe(200);
    const get = new RawTransfer(daemon, "GET", filesPath(id, { path: "/tmp/f" }));
    const { promise: begun, resolve } = Promise.withResolvers<IncomingMessage>();
    get.request.once("response", (response) => {
      response.pause();
      resolve(response);
    });
    get.request.end();
    const response = await begun;
    response.pause();
    clock.advance(3_600_000);
    response.resume();
    const answer = await get.answer;
    expect([answer.complete, answer.body.length]).toEqual([true, content.length]);
  });

  test("a moving one keeps its sandbox from being idle", async () => {
    const clock = new ManualClock();
    const daemon = await TestDaemon.start({}, { clock });
    const { id } = await daemon.place({ ttlRunningStop: 100 });
    const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }));
    for (let count = 0; count < 8; count += 1) {
      put.request.write(Buffer.alloc(1000));
      const renewed = clock.now() + 100_000;
      await expect.poll(async () => (await daemon.get(id)).idleDeadline).toBe(renewed);
      clock.advance(40_000);
    }
    expect((await daemon.get(id)).state).toBe("running");
    put.request.end();
    expect((await put.answer).status).toBe(200);
    clock.advance(101_000);
    expect((await daemon.wait(id)).endReason).toBe("idle_ttl");
  });
});

test("an archive without its trailer was cut off; a whole one has it", async () => {
  const { daemon, id } = await simulated();
  const put = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/tmp/f" }));
  put.request.end(Buffer.alloc(1_000_000));
  await put.answer;
  const get = new RawTransfer(daemon, "GET", filesPath(id, { path: "/tmp" }, "archive"));
  get.request.end();
  const answer = await get.answer;
  expect(answer).toMatchObject({ status: 200, complete: true });
  expect(answer.headers).toMatchObject({ "content-type": "application/x-tar", trailer: "x-dsec-archive" });
  expect(JSON.parse(String(answer.trailers["x-dsec-archive"]))).toEqual({
    entries: 2,
    bytes: 1_000_000,
    skipped: [],
    skippedCount: 0,
  });
});
