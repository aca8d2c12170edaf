/** Images whose entries are symlinks, meant to lead the runtime or the daemon out of the root. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { listMounts } from "../../../src/backends/linux/mount.ts";
import { SandboxFixture, shell } from "./sandbox-fixture.ts";

let fixture: SandboxFixture;
let outside: string;
let layers = 0;

beforeAll(() => {
  fixture = new SandboxFixture();
});

afterAll(async () => {
  await fixture[Symbol.asyncDispose]();
});

beforeEach(() => {
  outside = join(fixture.directory, `outside-${layers}`);
  mkdirSync(outside);
  writeFileSync(join(outside, "hosts"), "untouched");
});

/** A root that is the base with one entry replaced by a symlink. */
function planted(entry: string, target: string): { id: string; path: string } {
  layers += 1;
  const copy = join(fixture.directory, `planted-${layers}`);
  execFileSync("cp", ["-a", fixture.base, copy]);
  rmSync(join(copy, entry), { recursive: true, force: true });
  symlinkSync(target, join(copy, entry));
  const id = fixture.nextId();
  return { id, path: fixture.overlay(id, [copy]).path };
}

test.for(["proc", "dev", "sys"])(
  "an image whose /%s leads elsewhere is refused, and nothing is touched there",
  async (entry) => {
    const { id, path } = planted(entry, outside);
    await expect(fixture.start({ id, root: { type: "directory", path } })).rejects.toMatchObject({
      code: "start_failed",
      cause: { message: `/${entry} of the image is not a directory` },
    });
    expect(readdirSync(outside)).toEqual(["hosts"]);
    expect(listMounts().filter(({ target }) => target.startsWith(outside))).toEqual([]);
    expect(fixture.traces(id)).toEqual([]);
  },
);

test("an image whose /etc leads to a host directory starts, and nothing is written there", async () => {
  const { id, path } = planted("etc", outside);
  const sandbox = await fixture.start({ id, root: { type: "directory", path } });
  expect(readdirSync(outside)).toEqual(["hosts"]);
  expect(readFileSync(join(outside, "hosts"), "utf8")).toBe("untouched");
  expect(await shell(sandbox, "ls /etc/")).toContain("No such file");
});

test.for(["etc/hosts", "etc/hostname", "etc/resolv.conf"])(
  "/%s as a link is replaced and not followed",
  async (entry) => {
    const { id, path } = planted(entry, join(outside, "hosts"));
    const sandbox = await fixture.start({ id, root: { type: "directory", path } });
    expect(readFileSync(join(outside, "hosts"), "utf8")).toBe("untouched");
    expect(await shell(sandbox, `test -L /${entry} || echo plain`)).toBe("plain");
  },
);

test("a link that climbs out of the root ends at it", async () => {
  const { id, path } = planted("etc", "../../../../../../../../../../tmp");
  const sandbox = await fixture.start({ id, root: { type: "directory", path } });
  expect(await shell(sandbox, "cat /tmp/hostname")).toBe("box");
});

test("an image without /etc starts without the files in it", async () => {
  layers += 1;
  const copy = join(fixture.directory, `planted-${layers}`);
  execFileSync("cp", ["-a", fixture.base, copy]);
  rmSync(join(copy, "etc"), { recursive: true });
  const id = fixture.nextId();
  const sandbox = await fixture.start({
    id,
    root: { type: "directory", path: fixture.overlay(id, [copy]).path },
  });
  expect(await shell(sandbox, "ls -d /etc")).toContain("No such file");
});
