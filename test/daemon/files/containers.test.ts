import { createHash, randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { busybox, containerNode } from "../container-fixture.ts";
import type { TestDaemon } from "../daemon-fixture.ts";
import { codeOf, filesPath, RawTransfer } from "./raw-transfer.ts";

async function shell(daemon: TestDaemon, ref: string, script: string): Promise<string> {
  return (await daemon.run(ref, ["sh", "-c", script])).stdout;
}

async function get(
  daemon: TestDaemon,
  ref: string,
  query: Readonly<Record<string, string>>,
  route = "files",
) {
  const transfer = new RawTransfer(daemon, "GET", filesPath(ref, query, route));
  transfer.request.end();
  return transfer.answer;
}

async function put(
  daemon: TestDaemon,
  ref: string,
  query: Readonly<Record<string, string>>,
  content: string | Buffer,
) {
  const transfer = new RawTransfer(daemon, "PUT", filesPath(ref, query));
  transfer.request.end(content);
  return transfer.answer;
}

const errnoOf = (body: Buffer): unknown =>
  (JSON.parse(body.toString()) as { details?: { errno?: unknown } }).details?.errno;

test("paths are resolved inside the sandbox, whatever symlinks stand there", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place(busybox);
  const secret = `/etc/dsec-test-${randomBytes(6).toString("hex")}`;
  await shell(
    daemon,
    id,
    `mkdir -p /t/real; cd /t; ln -s /etc etc; ln -s ../../../../../../etc up; ln -s / root;
     ln -s /proc/1/root magic; ln -s /proc/self/root self; ln -s loop loop; echo inside > /etc/inside`,
  );
  // every way leads to the sandbox's own /etc
  for (const way of ["etc", "up", "root/etc", "root/root/../etc"]) {
    const answer = await get(daemon, id, { path: `/t/${way}/inside` });
    expect([way, answer.status, answer.body.toString()]).toEqual([way, 200, "inside\n"]);
    const written = await put(daemon, id, { path: `/t/${way}${secret.slice(4)}` }, "x");
    expect([way, written.status]).toEqual([way, 200]);
  }
  expect(await shell(daemon, id, `cat ${secret}`)).toBe("x");
  const { existsSync } = await import("node:fs");
  expect(existsSync(secret)).toBe(false);
  // and what /proc would lead to is not followed at all
  for (const way of ["magic", "self", "loop"]) {
    for (const answer of [
      await get(daemon, id, { path: `/t/${way}/etc/passwd` }),
      await get(daemon, id, { path: `/t/${way}/etc`, follow: "true" }, "archive"),
      await put(daemon, id, { path: `/t/${way}/etc/evil` }, "x"),
    ])
      expect(`${way} ${String(errnoOf(answer.body))}`).toMatch(/ (ELOOP|EACCES)$/);
  }
});

test("devices, FIFOs, sockets and directories are refused where a file is meant, and nothing waits", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place(busybox);
  await shell(daemon, id, "mkfifo /fifo; mkdir /d");
  for (const [path, errno] of [
    ["/fifo", "EINVAL"],
    ["/dev/zero", "EINVAL"],
    ["/d", "EISDIR"],
    ["/d/none", "ENOENT"],
  ] as const) {
    const read = await get(daemon, id, { path });
    expect([path, read.status, errnoOf(read.body)]).toEqual([path, 422, errno]);
    if (path === "/d/none") continue;
    const written = await put(daemon, id, { path }, "x");
    expect([path, written.status, errnoOf(written.body)]).toEqual([path, 422, errno]);
  }
  const listed = await get(daemon, id, { path: "/etc/hostname" }, "files/list");
  expect(errnoOf(listed.body)).toBe("ENOTDIR");
});

test("files that the kernel makes up have their content", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place(busybox);
  const answer = await get(daemon, id, { path: "/proc/version" });
  expect(answer).toMatchObject({ status: 200, complete: true });
  expect(answer.body.toString()).toMatch(/^Linux version/);
});

test("names that are no UTF-8 are listed, read, renamed and removed", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place(busybox);
  const name = Buffer.from([0x2f, 0x74, 0x2f, 0xff, 0x0a, 0xc3, 0x28]);
  await shell(daemon, id, "mkdir /t");
  const pathBytes = name.toString("base64");
  expect((await put(daemon, id, { pathBytes }, "odd")).status).toBe(200);
  const call = { params: { ref: id }, query: { path: "/t" } };
  const list = await daemon.http.json<{ items: { nameBytes: string }[] }>("listFiles", call);
  expect(list.items.map(({ nameBytes }) => nameBytes)).toEqual([name.subarray(3).toString("base64")]);
  expect((await get(daemon, id, { pathBytes })).body.toString()).toBe("odd");
  const to = { params: { ref: id }, body: { pathBytes, to: "/t/plain" } };
  await daemon.http.json("renameFile", to);
  expect(await shell(daemon, id, "cat /t/plain")).toBe("odd");
  await daemon.http.json("removeFile", { params: { ref: id }, body: { path: "/t/plain" } });
  expect(await shell(daemon, id, "ls /t")).toBe("");
});

test("an upload that the disk cannot hold is an error, and gives its room back", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place({ ...busybox, memoryMb: 256 });
  const answer = await put(daemon, id, { path: "/big" }, randomBytes(100_000_000));
  expect([answer.status, codeOf(answer)]).toEqual([422, "file_error"]);
  expect(["ENOSPC", "EDQUOT"]).toContain(errnoOf(answer.body));
  expect(await shell(daemon, id, "ls -a / | grep -e big -e dsec || true")).toBe("");
  expect((await put(daemon, id, { path: "/small" }, randomBytes(10_000_000))).status).toBe(200);
});

test("a sandbox that is stopped in the middle of an upload ends it with its reason", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place(busybox);
  const transfer = new RawTransfer(daemon, "PUT", filesPath(id, { path: "/f" }));
  transfer.request.write(Buffer.alloc(1_000_000, 1));
  await expect.poll(() => transfer.request.writableLength).toBe(0);
  await daemon.stop(id);
  const answer = await transfer.answer;
  transfer.request.destroy();
  expect(JSON.parse(answer.body.toString())).toMatchObject({ code: "sandbox_not_running", ambiguous: true });
});

test("an agent that is killed in the middle of a download cuts it", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place({ ...busybox, memoryMb: 128 });
  await shell(daemon, id, "dd if=/dev/zero of=/f bs=1M count=40 2>/dev/null");
  const transfer = new RawTransfer(daemon, "GET", filesPath(id, { path: "/f" }));
  transfer.request.once("response", (response) => {
    response.pause();
    void daemon.stop(id).then(() => response.resume());
  });
  transfer.request.end();
  const answer = await transfer.answer;
  expect(answer.status).toBe(200);
  expect(answer.complete).toBe(false);
  expect(answer.body.length).toBeLessThan(40 * 1_048_576);
});

test("20 uploads and downloads at once arrive as they were sent", async () => {
  const daemon = await (await containerNode()).start();
  const { id } = await daemon.place({ ...busybox, memoryMb: 256 });
  const contents = Array.from({ length: 20 }, (_, index) => randomBytes(1_000_000 + index));
  await Promise.all(
    contents.map(async (content, index) => {
      const sha256 = createHash("sha256").update(content).digest("hex");
      expect((await put(daemon, id, { path: `/f${index}`, sha256 }, content)).status).toBe(200);
    }),
  );
  const back = await Promise.all(contents.map(async (_, index) => get(daemon, id, { path: `/f${index}` })));
  expect(back.every(({ body }, index) => contents[index]?.equals(body))).toBe(true);
});
