import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { importImage } from "../../../../src/daemon/layers/images/image-import.ts";
import { push, startRegistry, writeLayout } from "./image-fixture.ts";
import { importPlace } from "./import-place.ts";

test("an import that was killed leaves nothing that the next one does not tidy up, and is not begun anew", async () => {
  await using place = await importPlace();
  const { node, store, directory, layout } = place;
  const registry = await startRegistry();
  onTestFinished(() => registry[Symbol.asyncDispose]());
  const { blobs } = await writeLayout(layout, {
    layers: [
      [{ name: "one", content: randomBytes(100_000) }],
      [{ name: "two", content: Buffer.alloc(60_000_000, "two") }],
    ],
  });
  await push(layout, registry, "app:1");
  const source = `${registry.host}/app:1`;
  const module = (name: string) =>
    JSON.stringify(new URL(`../../../../src/daemon/layers/${name}.ts`, import.meta.url));
  const script = `
    const { openLayerStore } = await import(${module("layer-store")});
    const { importImage } = await import(${module("images/image-import")});
    const [layerStore, source, directory] = process.argv.slice(1);
    const onProgress = ({ phase, bytes }) => phase === "unpacking" && bytes > 101_000 && console.log("half-way");
    await importImage(await openLayerStore(layerStore), { source }, { directory, onProgress });`;
  const killed = spawn(
    process.execPath,
    ["--input-type=module", "-e", script, node.layerStore, source, directory],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  await once(killed.stdout, "data");
  killed.kill("SIGKILL");
  await once(killed, "exit");
  expect(await store.list()).toEqual([]);
  expect(await readdir(join(directory, "tmp"))).toHaveLength(1);
  const before = registry.log().length;
  await importImage(store, { source }, { directory });
  const again = registry.log().slice(before);
  for (const blob of blobs) expect(again).not.toContain(`"GET /v2/app/blobs/${blob}`);
  for (const folder of [join(node.layerStore, "tmp"), join(directory, "tmp")])
    expect(await readdir(folder)).toEqual([]);
});
