import { execFileSync } from "node:child_process";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { libcFunction } from "../../../src/backends/linux/libc.ts";
import { openLayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { temporaryNode } from "../temporary-node.ts";

const setExtended = libcFunction<[string, string, Uint8Array, number, number]>("lsetxattr", [
  "const char *path",
  "const char *name",
  "const void *value",
  "size_t size",
  "int flags",
]);

test("a tree whose files stand for others, or have names that cannot be stored, is refused by their names", async () => {
  await using node = await temporaryNode();
  const store = await openLayerStore(node.layerStore);
  const tree = join(node.directory, "tree");
  await mkdir(tree);
  const reference = "odd:1";
  await writeFile(join(tree, "alias"), "1234567");
  for (const [name, value] of [
    ["trusted.overlay.metacopy", ""],
    ["trusted.overlay.redirect", "/etc/shadow"],
  ] as const) {
    setExtended(join(tree, "alias"), name, Buffer.from(value), value.length, 0);
    const archive = join(node.directory, "odd.tar");
    execFileSync("tar", ["--xattrs", "--xattrs-include=*", "-C", tree, "-cf", archive, "."]);
    for (const from of [tree, archive])
      await expect(store.build({ reference, from })).rejects.toMatchObject({
        code: "invalid_argument",
        message: expect.stringContaining(`'alias' has the attribute trusted.overlay.`) as string,
      });
  }
  await rm(join(tree, "alias"));
  await writeFile(join(tree, "n".repeat(255)), "");
  const refusal = await store.build({ reference, from: tree }).catch((error: unknown) => String(error));
  // A newer mkfs.erofs stores it.
  expect(typeof refusal === "string" ? refusal : "the name 'nnn").toContain("the name 'nnn");
  expect(await readdir(join(node.layerStore, "tmp"))).toEqual([]);
});
