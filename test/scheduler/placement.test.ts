import { describe, expect, test } from "vitest";
import type { NodeStatus } from "../../src/protocol/node.ts";
import { plan } from "../../src/scheduler/core/placement.ts";
import { sample, seededRandom } from "../../src/scheduler/core/random.ts";
import {
  liveCount,
  loadOf,
  type NodeSnapshot,
  type PlacementRequest,
} from "../../src/scheduler/core/snapshot.ts";

const request: PlacementRequest = { backend: "container", memoryMb: 512, cpus: 1 };

function status(name: string, change: Partial<NodeStatus> = {}): NodeStatus {
  return {
    name,
    version: "0",
    startedAt: 0,
    recovered: true,
    cordoned: false,
    backends: [{ backend: "container", engine: "runc", works: true, findings: [] }],
    cpus: 4,
    memoryBytes: 2 ** 34,
    memoryAvailableBytes: 2 ** 34,
    diskBytes: 2 ** 40,
    diskAvailableBytes: 2 ** 40,
    counts: {},
    asked: { cpus: 0, memoryBytes: 0, diskBytes: 0 },
    used: { memoryBytes: 0, diskBytes: 0 },
    maxSandboxes: 100,
    ...change,
  };
}

function node(name: string, change: Partial<NodeStatus> = {}): NodeSnapshot {
  return { name, status: status(name, change), unreachable: undefined, recent: [] };
}

/** A fleet made from a seed: some nodes down, cordoned, full or without the backend. */
function randomFleet(seed: number): NodeSnapshot[] {
  const random = seededRandom(seed);
  return Array.from({ length: Math.floor(random() * 12) }, (_, index) => {
    const name = `n${index}`;
    const maxSandboxes = 1 + Math.floor(random() * 5);
    const made = node(name, {
      cordoned: random() < 0.2,
      maxSandboxes,
      counts: { running: Math.floor(random() * (maxSandboxes + 1)), stopped: Math.floor(random() * 50) },
      memoryAvailableBytes: random() * 2 ** 34,
      backends: [{ backend: "container", engine: "runc", works: random() < 0.8, findings: [] }],
    });
    return random() < 0.2 ? { ...made, unreachable: "gave no answer" } : made;
  });
}

const seeds = Array.from({ length: 500 }, (_, seed) => seed);

describe("plan", () => {
  test("is a function of snapshot, requests and seed alone", () => {
    for (const seed of seeds) {
      const requests = Array.from({ length: 5 }, () => request);
      expect(plan(randomFleet(seed), requests, { seed })).toEqual(
        plan(randomFleet(seed), requests, { seed }),
      );
    }
  });

  test("never chooses a node that is down, cordoned, without the backend or full", () => {
    for (const seed of seeds) {
      const fleet = randomFleet(seed);
      const placed = new Map<string, number>();
      for (const { node: name } of plan(
        fleet,
        Array.from({ length: 20 }, () => request),
        { seed },
      )) {
        if (name === undefined) continue;
        const chosen = fleet.find((candidate) => candidate.name === name);
        const already = placed.get(name) ?? 0;
        expect(chosen?.unreachable).toBeUndefined();
        expect(chosen?.status?.cordoned).toBe(false);
        expect(chosen?.status?.backends[0]?.works).toBe(true);
        expect((chosen?.status?.counts["running"] ?? 0) + already).toBeLessThan(
          chosen?.status?.maxSandboxes ?? 0,
        );
        placed.set(name, already + 1);
      }
    }
  });

  test("refuses only when no node can take the request, and then names every node with its reason", () => {
    for (const seed of seeds) {
      const fleet = randomFleet(seed);
      for (const { node: name, refusals } of plan(
        fleet,
        Array.from({ length: 20 }, () => request),
        { seed },
      )) {
        const refused = refusals.map((refusal) => refusal.node);
        expect(new Set(refused).size).toBe(refused.length);
        expect(refused.length === fleet.length).toBe(name === undefined);
        expect(refused).not.toContain(name);
        for (const { reason } of refusals) expect(reason).not.toBe("");
      }
    }
  });

  test("names each kind of refusal", () => {
    const fleet = [
      { ...node("down"), unreachable: "gave no answer within 5000 ms" },
      { ...node("new"), status: undefined },
      node("cordoned", { cordoned: true }),
      node("full", { maxSandboxes: 2, counts: { running: 1, starting: 1 } }),
      node("bare", { backends: [] }),
      node("broken", {
        backends: [
          {
            backend: "container",
            engine: "runc",
            works: false,
            findings: [{ level: "error", message: "runc is missing" }],
          },
        ],
      }),
    ];
    expect(plan(fleet, [request], { seed: 1 })).toEqual([
      {
        node: undefined,
        refusals: [
          { node: "down", code: "node_unreachable", reason: "gave no answer within 5000 ms" },
          { node: "new", code: "node_unreachable", reason: "has not answered yet" },
          { node: "cordoned", code: "draining", reason: "is cordoned" },
          { node: "full", code: "admission_count", reason: "holds 2 sandboxes, its limit" },
          { node: "bare", code: "backend_unavailable", reason: "has no backend container" },
          {
            node: "broken",
            code: "backend_unavailable",
            reason: "its backend container does not work: runc is missing",
          },
        ],
      },
    ]);
  });

  test("takes the node whose engine is asked for", () => {
    const docker = node("docker", {
      backends: [{ backend: "container", engine: "docker", works: true, findings: [] }],
    });
    const [first] = plan([node("runc"), docker], [{ ...request, engine: "docker" }], { seed: 3 });
    expect(first?.node).toBe("docker");
    expect(first?.refusals).toEqual([
      { node: "runc", code: "backend_unavailable", reason: "has no backend container (docker)" },
    ]);
  });

  test("with as many choices as nodes takes the least loaded one", () => {
    for (const seed of seeds) {
      const fleet = randomFleet(seed);
      const [first] = plan(fleet, [request], { seed, choices: fleet.length });
      const chosen = fleet.find((candidate) => candidate.name === first?.node);
      const refused = new Set(first?.refusals.map((refusal) => refusal.node));
      const loads = fleet
        .filter((candidate) => !refused.has(candidate.name))
        .map((candidate) =>
          candidate.status === undefined ? 0 : loadOf(candidate.status, candidate.recent),
        );
      const taken = chosen?.status === undefined ? [] : [loadOf(chosen.status, chosen.recent)];
      expect(taken).toEqual(loads.length === 0 ? [] : [Math.min(...loads)]);
    }
  });

  test("spreads a burst over equal nodes", () => {
    const fleet = Array.from({ length: 10 }, (_, index) => node(`n${index}`));
    const counts = new Map<string | undefined, number>();
    for (const { node: name } of plan(
      fleet,
      Array.from({ length: 200 }, () => request),
      { seed: 7 },
    ))
      counts.set(name, (counts.get(name) ?? 0) + 1);
    expect(Math.max(...counts.values())).toBeLessThanOrEqual(26);
    expect(Math.min(...counts.values())).toBeGreaterThanOrEqual(14);
  });
});

describe("snapshot", () => {
  test("counts live sandboxes and those on their way, not ended ones", () => {
    const counts = { running: 3, paused: 1, stopped: 40, failed: 2, lost: 1 };
    expect(liveCount(status("n", { counts }), [{ memoryBytes: 1, cpus: 1 }])).toBe(5);
  });

  test("what was placed recently makes a node fuller", () => {
    const empty = status("n");
    expect(loadOf(empty, [{ memoryBytes: 2 ** 30, cpus: 1 }])).toBeGreaterThan(loadOf(empty, []));
  });
});

describe("sample", () => {
  test("gives different items, all of them when there are few", () => {
    for (const seed of seeds) {
      const chosen = sample(["a", "b", "c"], 2, seededRandom(seed));
      expect(new Set(chosen).size).toBe(2);
    }
    expect(sample(["a", "b"], 5, seededRandom(1)).toSorted()).toEqual(["a", "b"]);
  });
});
