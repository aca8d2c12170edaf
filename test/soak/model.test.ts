import { describe, expect, test } from "vitest";
import { DSecError } from "../../src/sdk/index.ts";
import { expectBytes, expectEqual, expectRefusal } from "./mismatch.ts";
import { Random } from "./random.ts";
import { judge } from "./stability.ts";
import type { Sample } from "./sampler.ts";
import { Tree, treeRoot } from "./tree.ts";

describe("chance", () => {
  test("is decided by the seed", () => {
    const draw = (seed: number): unknown => {
      const random = new Random(seed);
      return [
        random.int(1000),
        random.bytes(7).toString("hex"),
        random.text(),
        random.pick([1, 2, 3]),
        random.chance(0.5),
      ];
    };
    expect(draw(7)).toEqual(draw(7));
    expect(draw(7)).not.toEqual(draw(8));
  });

  test("keeps to its limits and weights", () => {
    const random = new Random(1);
    const drawn = Array.from({ length: 1000 }, () => random.between(3, 5));
    expect(new Set(drawn)).toEqual(new Set([3, 4, 5]));
    const items = [
      { name: "often", weight: 9 },
      { name: "never", weight: 0 },
      { name: "rarely", weight: 1 },
    ];
    const counts = Map.groupBy(
      Array.from({ length: 1000 }, () => random.weighted(items).name),
      (name) => name,
    );
    expect(counts.get("never")).toBeUndefined();
    expect(counts.get("often")?.length).toBeGreaterThan(5 * (counts.get("rarely")?.length ?? 0));
  });
});

describe("a difference from the model", () => {
  test("is found in values, in bytes and in refusals", async () => {
    expect(() => expectEqual("code", [1, "a"], [1, "b"])).toThrow("code: [ 1, 'a' ] instead of [ 1, 'b' ]");
    expect(() => expectBytes("file", Buffer.from("ab"), Buffer.from("ac"))).toThrow("file: 2 bytes");
    const refusal = async (reason: Error): Promise<void> =>
      expectRefusal("call", Promise.reject(reason), "not_found");
    await expect(refusal(new DSecError("not_found", "x"))).resolves.toBeUndefined();
    await expect(refusal(new DSecError("internal", "x"))).rejects.toThrow(
      "'internal' instead of 'not_found'",
    );
    await expect(refusal(new Error("x"))).rejects.toThrow("instead of not_found");
    await expect(expectRefusal("call", Promise.resolve(1), "not_found")).rejects.toThrow("success with 1");
  });
});

describe("the model of the files", () => {
  test("moves and removes whole trees, and nothing beside them", () => {
    const tree = new Tree();
    const file = { type: "file", mode: 0o644, content: Buffer.from("x") } as const;
    const directory = { type: "directory", mode: 0o755 } as const;
    tree.set(`${treeRoot}/a`, directory);
    tree.set(`${treeRoot}/a/f`, file);
    tree.set(`${treeRoot}/ab`, file);
    tree.move(`${treeRoot}/a`, `${treeRoot}/b`);
    expect(tree.paths().sort()).toEqual([treeRoot, `${treeRoot}/ab`, `${treeRoot}/b`, `${treeRoot}/b/f`]);
    expect(tree.children(treeRoot).sort()).toEqual(["ab", "b"]);
    tree.remove(`${treeRoot}/b`);
    expect(tree.paths().sort()).toEqual([treeRoot, `${treeRoot}/ab`]);
    expect(tree.listing()).toContain("81a4 1 /work/ab");
  });
});

describe("stability", () => {
  const run = (memory: (index: number) => number): Sample[] =>
    Array.from({ length: 30 }, (_, index) => ({
      time: index,
      fleetMemory: memory(index),
      fleetFiles: 100,
      agents: 10,
      agentMemory: 3_000_000,
      agentFiles: 100,
    }));
  const stable = (samples: readonly Sample[]): boolean =>
    judge(samples, 0.1).every((verdict) => verdict.stable);

  test("is that the last third has no more than the middle one, but for the tolerance", () => {
    expect(stable(run((index) => Math.min(index, 10) * 3e7))).toBe(true);
    expect(stable(run((index) => 3e8 + (index % 5) * 1e7))).toBe(true);
    expect(stable(run((index) => index * 3e7))).toBe(false);
  });
});
