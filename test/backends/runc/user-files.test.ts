/** Images whose users' files are meant to hold the runtime up, which reads them at each start. */
import { execFileSync } from "node:child_process";
import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { checkUserFiles } from "../../../src/backends/container/runc/user-files.ts";
import { SandboxFixture, shell } from "./sandbox-fixture.ts";

describe("the files of users", () => {
  let base: string;
  let root: string;
  let count = 0;

  beforeAll(() => {
    base = mkdtempSync(join(tmpdir(), "dsec-users-"));
  });

  beforeEach(() => {
    root = join(base, String(count++));
    for (const folder of ["etc", "proc", "dev", "data"]) mkdirSync(join(root, folder), { recursive: true });
    writeFileSync(join(root, "data/users"), "root:x:0:0:root:/root:/bin/sh\n");
    execFileSync("mkfifo", [join(root, "data/fifo")]);
  });

  afterAll(() => {
    rmSync(base, { recursive: true });
  });

  test.for<[string, string, () => void]>([
    ["a FIFO", "is not a regular file", () => linkSync(join(root, "data/fifo"), join(root, "etc/passwd"))],
    ["a device", "is not a regular file", () => mknod("etc/passwd", "c", "1", "9")],
    ["a directory", "is not a regular file", () => mkdirSync(join(root, "etc/passwd"))],
    ["a huge file", "is larger than", () => huge("etc/passwd")],
    ["a link to a FIFO", "is not a regular file", () => link("/data/fifo")],
    ["a chain of links to a FIFO", "is not a regular file", () => chain("../../data/x/../fifo")],
    ["a name of odd bytes with a FIFO behind", "is not a regular file", () => oddName()],
    ["a link to a device of the sandbox", "leads into /dev", () => link("/dev/urandom")],
    ["a link that climbs to one", "leads into /dev", () => link("../../../dev/urandom")],
    ["a way through /proc", "leads into /proc", () => link("/proc/self/root/data/fifo")],
  ])("are refused as %s", ([, message, plant]) => {
    plant();
    expect(() => checkUserFiles(root)).toThrow(`/etc/passwd of the image ${message}`);
  });

  test("are refused for their folder, too", () => {
    symlinkSync("data", join(root, "elsewhere"));
    rmSync(join(root, "etc"), { recursive: true });
    symlinkSync("/elsewhere/.", join(root, "etc"));
    renameSync(join(root, "data/fifo"), join(root, "data/group"));
    expect(() => checkUserFiles(root)).toThrow("/etc/group of the image is not a regular file");
  });

  test.for<[string, () => void]>([
    ["that is not there", () => undefined],
    ["that is plain", () => linkSync(join(root, "data/users"), join(root, "etc/passwd"))],
    ["behind a link", () => link("/data/users")],
    ["behind a link that leads nowhere", () => link("/no/such/file")],
    ["behind a link that asks for more of a file", () => link("/data/users/more")],
    ["behind a link to itself", () => link("passwd")],
    ["behind a link out of the root", () => link("../../../../data/users")],
  ])("are taken: one %s", ([, plant]) => {
    plant();
    expect(() => checkUserFiles(root)).not.toThrow();
  });

  function link(target: string): void {
    symlinkSync(target, join(root, "etc/passwd"));
  }

  function chain(target: string): void {
    mkdirSync(join(root, "data/x"));
    symlinkSync(target, join(root, "data/x/second"));
    link("../data/x/second");
  }

  function oddName(): void {
    const odd = Buffer.concat([Buffer.from(`${root}/data/`), Buffer.from([0xff, 0xc3])]);
    renameSync(join(root, "data/fifo"), odd);
    symlinkSync(Buffer.concat([Buffer.from("/data/"), Buffer.from([0xff, 0xc3])]), join(root, "etc/passwd"));
  }

  function mknod(path: string, ...numbers: readonly string[]): void {
    execFileSync("mknod", [join(root, path), ...numbers]);
  }

  function huge(path: string): void {
    writeFileSync(join(root, path), "");
    truncateSync(join(root, path), 100_000_000);
  }
});

test("an image whose group file is a FIFO is refused at once and leaves nothing; one whose user file is a link starts", async () => {
  await using fixture = new SandboxFixture();
  const image = (name: string, plant: (etc: string) => void) => {
    const copy = join(fixture.directory, name);
    execFileSync("cp", ["-a", fixture.base, copy]);
    plant(join(copy, "etc"));
    const id = fixture.nextId();
    return { id, root: { type: "directory", path: fixture.overlay(id, [copy]).path } } as const;
  };
  const trap = image("fifo", (etc) => {
    rmSync(join(etc, "group"));
    execFileSync("mkfifo", [join(etc, "group")]);
  });
  await expect(fixture.start(trap)).rejects.toMatchObject({
    code: "start_failed",
    cause: { message: "/etc/group of the image is not a regular file" },
  });
  expect(fixture.traces(trap.id)).toEqual([]);
  const linked = image("link", (etc) => {
    renameSync(join(etc, "passwd"), join(etc, "users"));
    symlinkSync("users", join(etc, "passwd"));
  });
  expect(await shell(await fixture.start(linked), "echo up")).toBe("up");
});
