import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { mount, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { MetadataCache } from "../../../src/daemon/layers/metadata-cache.ts";

let directory: string;
let copies: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "dsec-metadata-"));
  copies = join(directory, "copies");
});

afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

/** A blob of the store, and how a cache that keeps 250 bytes copies it. */
async function blobOf(content: string) {
  const source = join(directory, "source");
  await writeFile(source, content);
  const hex = createHash("sha256").update(content).digest("hex");
  const blob = { digest: `sha256:${hex}`, bytes: content.length };
  return { hex, copy: async () => new MetadataCache(copies, 250).copyOf(blob, source, () => undefined) };
}

/** Makes copies, the first one the longest unused. */
async function copiesOf(...contents: readonly string[]): Promise<string[]> {
  const names: string[] = [];
  for (const [index, content] of contents.entries()) {
    const { hex, copy } = await blobOf(content);
    await utimes(await copy(), index + 1, index + 1);
    names.push(hex);
  }
  return names;
}

test("of copies that no mount uses the longest unused go, until the new one is no more than are kept", async () => {
  const [a = "", b = ""] = await copiesOf("a".repeat(100), "b".repeat(100));
  const used = await blobOf("a".repeat(100));
  await used.copy();
  const c = await blobOf("c".repeat(100));
  await c.copy();
  expect((await readdir(copies)).toSorted()).toEqual([a, c.hex].toSorted());
  expect(await readdir(copies)).not.toContain(b);
});

test("a copy that is mounted stays and does not count, and one that alone is too much is made all the same", async () => {
  const [a = "", b = ""] = await copiesOf("a".repeat(200), "b".repeat(200));
  // stands for a layer's mount: what counts is its source
  const target = join(directory, "mounted");
  await mkdir(target);
  const again = await blobOf("a".repeat(200));
  mount({ source: await again.copy(), target, type: "tmpfs" });
  try {
    const large = await blobOf("c".repeat(1000));
    await large.copy();
    expect((await readdir(copies)).toSorted()).toEqual([a, large.hex].toSorted());
    expect(await readdir(copies)).not.toContain(b);
  } finally {
    unmountIfMounted(target);
  }
});
