import { join } from "node:path";
import { expect, test } from "vitest";
import { importImage } from "../../../../src/daemon/layers/images/image-import.ts";
import { writeLayout, type Member } from "./image-fixture.ts";
import { importPlace } from "./import-place.ts";

test("the steps of an image's builder are kept with the layers that they went into; nonsense among them costs nothing", async () => {
  await using place = await importPlace();
  const { node, store, directory, layout } = place;
  const big = (name: string): Member[] => [{ name, content: Buffer.alloc(300_000, name) }];
  const layers = [big("a"), big("b"), big("c")];
  const history = [
    { created: "2026-01-01T00:00:00Z", created_by: "ADD base" },
    { created_by: "RUN first" },
    { created_by: "ENV A=1", empty_layer: true },
    { created_by: "RUN last" },
  ];
  await writeLayout(layout, { layers, history, compression: "none" });
  const made = await importImage(
    store,
    { source: layout, name: "made:1", mergeLimit: 700_000 },
    { directory },
  );
  expect(await store.read(made.digest)).toMatchObject({
    layers: [{}, {}].map(() => expect.stringMatching(/^sha256:/) as string),
    history: [
      { layer: 0, createdBy: "ADD base", files: true, createdAt: "2026-01-01T00:00:00Z" },
      { layer: 0, createdBy: "RUN first", files: true },
      { layer: 0, createdBy: "ENV A=1" },
      { layer: 1, createdBy: "RUN last", files: true },
    ],
  });
  expect(await store.provenance.find({ name: "made", version: "1" }, made.digest)).toMatchObject({
    from: `oci:${layout}`,
  });
  for (const nonsense of [[{ created_by: "one step, three layers" }], [1, 2, 3]]) {
    const other = join(node.directory, "nonsense");
    await writeLayout(other, { layers, history: nonsense as object[], compression: "none" });
    const { digest } = await importImage(
      store,
      { source: other, name: `nonsense:${nonsense.length}` },
      { directory },
    );
    expect(await store.read(digest)).not.toHaveProperty("history");
  }
});
