import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { text as readText } from "node:stream/consumers";
import { expect, test, vi } from "vitest";
import type { Guest } from "../../src/agent/guest.ts";
import { execSpec, MIB, sh } from "./fixture.ts";
import type { Suite } from "./suite.ts";

export function fileSentences({ fixture, subject }: Suite): void {
  const real = subject.capabilities.realProcesses;

  test("what is written is read again, with its mode and size", async () => {
    const { guest } = await fixture().start();
    const content = randomBytes(3 * MIB);
    const sha256 = createHash("sha256").update(content).digest();
    await guest.files.write("/tmp/a file ü", pieces(content), { mode: 0o640, size: content.length, sha256 });
    const { info, bytes } = await read(guest, "/tmp/a file ü");
    expect(bytes.equals(content)).toBe(true);
    expect(info).toMatchObject({ type: "file", mode: 0o640, size: content.length, uid: 0 });
    expect((await guest.files.stat("/tmp/a file ü", { followSymlink: true })).size).toBe(content.length);
  });

  test("a part of a file can be read", async () => {
    const { guest } = await fixture().start();
    await guest.files.write("/tmp/digits", pieces(Buffer.from("0123456789")), {});
    expect((await read(guest, "/tmp/digits", { offset: 3, length: 4 })).bytes.toString()).toBe("3456");
    expect((await read(guest, "/tmp/digits", { offset: 8 })).bytes.toString()).toBe("89");
    expect((await read(guest, "/tmp/digits", { offset: 20 })).bytes.toString()).toBe("");
  });

  test("a write whose size or hash does not match leaves nothing, and what was there stays", async () => {
    const { guest } = await fixture().start();
    await guest.files.write("/tmp/kept", pieces(Buffer.from("old")), {});
    const wrong = { sha256: Buffer.alloc(32) };
    for (const options of [wrong, { size: 99 }]) {
      await expect(guest.files.write("/tmp/kept", pieces(Buffer.from("new")), options)).rejects.toMatchObject(
        {
          code: "file_error",
        },
      );
      await expect(
        guest.files.write("/tmp/fresh", pieces(Buffer.from("new")), options),
      ).rejects.toMatchObject({
        code: "file_error",
      });
    }
    expect((await read(guest, "/tmp/kept")).bytes.toString()).toBe("old");
    expect((await guest.files.list("/tmp")).map(({ name }) => name.toString())).toEqual(["kept"]);
  });

  test("directories are made, listed, renamed and removed", async () => {
    const { guest } = await fixture().start();
    await guest.files.mkdir("/tmp/one/two", { parents: true });
    await guest.files.write("/tmp/one/file", pieces(Buffer.from("x")), {});
    const listed = await guest.files.list("/tmp/one");
    expect(listed.map(({ name, type }) => `${name.toString()} ${type}`).sort()).toEqual([
      "file file",
      "two directory",
    ]);
    await guest.files.rename("/tmp/one", "/tmp/three");
    expect((await read(guest, "/tmp/three/file")).bytes.toString()).toBe("x");
    await expect(guest.files.remove("/tmp/three", { recursive: false })).rejects.toMatchObject({
      code: "file_error",
    });
    await guest.files.remove("/tmp/three", { recursive: true });
    expect(await guest.files.list("/tmp")).toEqual([]);
  });

  test("a path that does not exist is an error with its errno", async () => {
    const { guest } = await fixture().start();
    const missing = { code: "file_error", details: { errno: "ENOENT" } };
    await expect(guest.files.stat("/no/such", { followSymlink: true })).rejects.toMatchObject(missing);
    await expect(guest.files.list("/no/such")).rejects.toMatchObject(missing);
    await expect(read(guest, "/no/such")).rejects.toMatchObject(missing);
    await expect(guest.files.remove("/no/such", { recursive: true })).rejects.toMatchObject(missing);
  });

  test.runIf(real)("files of the sandbox are those that its processes see", async () => {
    const { guest } = await fixture().start();
    await guest.files.write("/root/from-outside", pieces(Buffer.from("hello")), { mode: 0o755 });
    expect((await sh(guest, "cat /root/from-outside; stat -c %a /root/from-outside")).text).toBe(
      "hello755\n",
    );
    await sh(guest, "ln -s /etc/passwd /root/link; echo inside > /root/from-inside");
    expect((await read(guest, "/root/from-inside")).bytes.toString()).toBe("inside\n");
    const link = await guest.files.stat("/root/link", { followSymlink: false });
    expect([link.type, link.linkTarget?.toString()]).toEqual(["symlink", "/etc/passwd"]);
  });

  test("a port on which nothing listens is refused", async () => {
    const { guest } = await fixture().start();
    await expect(guest.dial(9)).rejects.toMatchObject({ code: "port_refused" });
  });

  test.runIf(real)("a service on loopback can be dialled", async () => {
    const { guest } = await fixture().start();
    await guest.files.write("/tmp/page", pieces(Buffer.from("hello from inside")), {});
    const server = await guest.exec(
      execSpec(["busybox", "httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/tmp"]),
      () => {},
    );
    const connection: Duplex = await vi.waitFor(() => guest.dial(8080), { timeout: 10_000, interval: 20 });
    connection.end("GET /page HTTP/1.0\r\n\r\n");
    expect(await readText(connection)).toMatch(/^HTTP\/1\.[01] 200 OK[^]*hello from inside$/);
    server.release();
  });
}

async function* pieces(content: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < content.length; at += 100_000) yield content.subarray(at, at + 100_000);
}

async function read(
  guest: Guest,
  path: string,
  range: { offset?: number; length?: number } = {},
): Promise<{ readonly info: { readonly size: number }; readonly bytes: Buffer }> {
  const chunks: Buffer[] = [];
  const info = await guest.files.read(path, range, (chunk) => void chunks.push(Buffer.from(chunk)));
  return { info, bytes: Buffer.concat(chunks) };
}
