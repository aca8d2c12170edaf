import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { SandboxLog } from "../../src/daemon/sandbox-log.ts";

const { signal } = new AbortController();

async function valuesOf(log: SandboxLog<string>, sandbox: string, since?: number): Promise<string[]> {
  const values: string[] = [];
  for await (const { value } of log.read(sandbox, { since, follow: false }, signal)) values.push(value);
  return values;
}

test("the newest entries of a sandbox and a lane are kept, and their numbers tell how many are gone", async () => {
  const log = new SandboxLog<string>({ perLane: 2, inAll: 100 });
  for (const value of ["a", "b", "c"]) log.add("one", 1, value);
  log.add("two", 1, "d");
  log.add("one", 1, "rare", { lane: "another" });
  const entries = [];
  for await (const entry of log.read("one", { since: undefined, follow: false }, signal)) entries.push(entry);
  expect(entries).toMatchObject([
    { sequence: 2, value: "b" },
    { sequence: 3, value: "c" },
    { sequence: 4, value: "rare" },
  ]);
  expect(await valuesOf(log, "two")).toEqual(["d"]);
});

test("room is made among sandboxes that have ended, the longest ended first, and then among one's own", async () => {
  const log = new SandboxLog<string>({ perLane: 10, inAll: 6 });
  for (const sandbox of ["one", "two", "three"]) for (const value of ["a", "b"]) log.add(sandbox, 1, value);
  log.end("two");
  log.end("one");
  log.add("three", 1, "c", { weight: 3 });
  expect(await Promise.all(["one", "two", "three"].map(async (of) => valuesOf(log, of)))).toEqual([
    ["b"],
    [],
    ["a", "b", "c"],
  ]);
  log.add("three", 1, "d", { weight: 3 });
  expect(await Promise.all(["one", "three"].map(async (of) => valuesOf(log, of)))).toEqual([[], ["c", "d"]]);
});

test("who follows gets what comes, until the sandbox has ended, its entries are forgotten or nobody wants more", async () => {
  const log = new SandboxLog<string>({ perLane: 10, inAll: 100 });
  const follow = async (sandbox: string, stop = signal, since?: number): Promise<string[]> => {
    const values: string[] = [];
    for await (const { value } of log.read(sandbox, { since, follow: true }, stop)) values.push(value);
    return values;
  };
  const stop = new AbortController();
  log.add("ends", 1, "old");
  const following = [
    follow("ends"),
    follow("ends", signal, 5),
    follow("forgotten"),
    follow("aborted", stop.signal),
  ];
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
  for (const sandbox of ["ends", "forgotten", "aborted"]) log.add(sandbox, 7, "new");
  log.end("ends");
  await new Promise((resolve) => {
    setImmediate(resolve);
  });
  log.remove("forgotten");
  stop.abort();
  expect(await Promise.all(following)).toEqual([["old", "new"], ["new"], ["new"], ["new"]]);
  expect(await follow("ends")).toEqual(["old", "new"]);
});

test("following a log for long leaves nothing behind at its signal", async () => {
  const log = new SandboxLog<string>({ perLane: 10, inAll: 10 });
  const stop = new AbortController();
  const entries = log.read("one", { since: undefined, follow: true }, stop.signal);
  for (let entry = 0; entry < 3; entry += 1) {
    const next = entries.next();
    log.add("one", 1, "more");
    await next;
  }
  expect(getEventListeners(stop.signal, "abort")).toEqual([]);
});
