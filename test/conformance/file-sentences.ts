import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { text as readText } from "node:stream/consumers";
import { crc32 } from "node:zlib";
import { expect, test, vi } from "vitest";
import { encodeTarHeader, tarEnd } from "../../src/protocol/tar-encode.ts";
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

  test("a tree goes out as an archive and comes in again as it was", async () => {
    const { guest } = await fixture().start();
    await guest.files.mkdir("/tmp/tree/sub/empty", { parents: true });
    await guest.files.mkdir("/tmp/back", { parents: false });
    await guest.files.write("/tmp/tree/sub/file", pieces(randomBytes(300_000)), { mode: 0o640 });
    const { bytes, result } = await archive(guest, "/tmp/tree");
    expect(result).toMatchObject({ entries: 4, bytes: 300_000, skippedCount: 0 });
    const taken = await guest.files.extract("/tmp/back", pieces(bytes), { owners: true });
    expect(taken).toMatchObject({ entries: 4, bytes: 300_000 });
    expect((await guest.files.list("/tmp/back/tree/sub")).map(({ name }) => name.toString()).sort()).toEqual([
      "empty",
      "file",
    ]);
    const [was, is] = await Promise.all([
      read(guest, "/tmp/tree/sub/file"),
      read(guest, "/tmp/back/tree/sub/file"),
    ]);
    expect(is.bytes.equals(was.bytes)).toBe(true);
    expect(is.info).toMatchObject({ mode: 0o640 });
  });

  test.runIf(real)("modes, owners, links, holes, odd names and times survive an archive", async () => {
    const { guest } = await fixture().start();
    await sh(
      guest,
      `mkdir -p /tmp/from/sub/empty /tmp/to; cd /tmp/from; echo x > f; chown 12:34 f; chmod 4755 f; ln f sub/second
       ln -s /no/where dangling; dd if=/dev/zero of=holes bs=1 count=0 seek=8000000 2>/dev/null
       echo odd > "$(printf 'a\\377\\nb')"; chmod 1700 sub/empty; touch -d @77 sub/empty; mkfifo pipe`,
    );
    const { bytes, result } = await archive(guest, "/tmp/from");
    expect(result.skipped.map(({ path, errno }) => `${path.toString()} ${errno}`)).toEqual([
      "from/pipe ENOTSUP",
    ]);
    await guest.files.extract("/tmp/to", pieces(bytes), { owners: true });
    const describe = (path: string): string =>
      `cd ${path}; find . -mindepth 1 ! -name pipe | sort | while read -r n; do stat -c '%n %f %u %g %s %Y %h' "$n" 2>&1; done; readlink dangling`;
    const was = await sh(guest, describe("/tmp/from"));
    const is = await sh(guest, describe("/tmp/to/from"));
    expect(is.text).toBe(was.text);
    expect((await sh(guest, "du -k /tmp/to/from/holes | cut -f1")).text.trim()).toBe("0");
    expect((await sh(guest, "cat /tmp/to/from/a*")).text).toBe("odd\n");
  });

  test.runIf(real)(
    "nothing of an archive gets outside its directory, and what is refused leaves nothing",
    async () => {
      const { guest } = await fixture().start();
      await sh(guest, "mkdir -p /tmp/in /tmp/outside; ln -s /tmp/outside /tmp/in/link");
      for (const name of ["../outside/evil", "/tmp/outside/evil", "link/evil", "sub/../../outside/evil"]) {
        const refused = guest.files.extract("/tmp/in", pieces(oneFile(name)), { owners: false });
        await expect(refused).rejects.toMatchObject({ code: "file_error", details: { entry: name } });
      }
      expect((await sh(guest, "ls -A /tmp/outside")).text).toBe("");
      expect((await sh(guest, "ls -A /tmp/in; ls -A /tmp")).text).toBe("link\nin\noutside\n");
    },
  );

  test("an upload is checked by a sum at its end, too", async () => {
    const { guest } = await fixture().start();
    const content = randomBytes(200_000);
    const sum = Buffer.alloc(4);
    sum.writeUInt32LE(crc32(content));
    await guest.files.write("/tmp/f", pieces(content), { checkAtEnd: { kind: "crc32", value: () => sum } });
    const wrong = guest.files.write("/tmp/g", pieces(content), {
      checkAtEnd: { kind: "crc32", value: () => Buffer.alloc(4) },
    });
    await expect(wrong).rejects.toMatchObject({ code: "file_error" });
    expect((await guest.files.list("/tmp")).map(({ name }) => name.toString())).toEqual(["f"]);
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

async function archive(guest: Guest, path: string) {
  const chunks: Buffer[] = [];
  const options = { name: Buffer.from(path.slice(path.lastIndexOf("/") + 1)), followSymlink: false };
  const result = await guest.files.archive(path, options, (chunk) => void chunks.push(Buffer.from(chunk)));
  return { bytes: Buffer.concat(chunks), result };
}

/** An archive of one empty file. */
function oneFile(name: string): Buffer {
  const member = { type: "file", mode: 0o644, uid: 0, gid: 0, mtimeMs: 0, size: 0 } as const;
  return Buffer.concat([encodeTarHeader({ ...member, name: Buffer.from(name) }), tarEnd]);
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
