import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { WatchEvent } from "../../src/protocol/sandbox.ts";
import { TestFleet } from "./fleet-fixture.ts";
import { take, untilType } from "./watch-events.ts";

describe("watches", () => {
  test("one picture of all nodes, then changes from each; resumed by the cursor without a new picture", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const made = await Promise.all(Array.from({ length: 4 }, async () => fleet.create()));
    const http = fleet.http();
    const first = await http.lines<WatchEvent>("watch");
    const snapshot = await take(first, 5);
    expect(snapshot.map(({ type }) => type)).toEqual([...made.map(() => "snapshot"), "synced"]);
    const synced = snapshot.at(-1);
    await first.return();
    for (const sandbox of made) await sandbox.touch();
    const cursor = synced !== undefined && "cursor" in synced ? synced.cursor : "";
    const resumed = await http.lines<WatchEvent>("watch", { query: { cursor } });
    const changes = await take(resumed, 4);
    expect(changes.map(({ type }) => type)).toEqual(made.map(() => "changed"));
    const ids = changes.flatMap((event) => (event.type === "changed" ? [event.sandbox.id] : []));
    expect(ids.toSorted()).toEqual(made.map(({ id }) => id).toSorted());
    await resumed.return();
  });

  test("a cursor that nobody knows gives a new picture", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    await fleet.create();
    const http = fleet.http();
    for (const cursor of ["n1:gone.7,n2:gone.9", "nonsense", "n1:%zz"]) {
      const lines = await http.lines<WatchEvent>("watch", { query: { cursor } });
      expect((await take(lines, 2)).map(({ type }) => type)).toEqual(["snapshot", "synced"]);
      await lines.return();
    }
  });

  test("a node that comes back without its past tells what is gone", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const made = await Promise.all(Array.from({ length: 8 }, async () => fleet.create()));
    const events = fleet.client.watch();
    await untilType(events, "synced");
    const gone = made.filter(({ info }) => info.node === "n1").map(({ id }) => id);
    for (const id of gone) await (await fleet.client.get(id)).stop();
    await fleet.stopNode("n1");
    await fleet.startNode("n1", { dataDir: join(fleet.dir, "n1", "fresh") });
    const removed = new Set<string>();
    while (removed.size < gone.length) {
      const event = await untilType(events, "removed");
      if (event.type === "removed") removed.add(event.id);
    }
    expect([...removed].toSorted()).toEqual(gone.toSorted());
    await events.return();
  });

  test("a malformed filter is refused before anything is streamed", async () => {
    const fleet = await TestFleet.start();
    await expect(fleet.client.watch({ label: ["=x"] }).next()).rejects.toMatchObject({
      code: "invalid_argument",
    });
  });
});
