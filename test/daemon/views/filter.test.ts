import { expect, test } from "vitest";
import { compileFilter } from "../../../src/daemon/views/filter.ts";
import { newRecord, toSandbox } from "../../../src/daemon/lifecycle/sandbox-record.ts";
import { nothingAllowed } from "../nothing-allowed.ts";
import { type Sandbox, type SandboxFilter, SandboxSpec } from "../../../src/protocol/sandbox.ts";

function sandbox(changes: Partial<Sandbox>): Sandbox {
  const spec = SandboxSpec.parse({
    backend: "simulated",
    image: "x",
    name: "web",
    labels: { job: "7", tier: "" },
  });
  const record = newRecord({ id: "n1-aaaaaaaaaa", owner: "alice", spec }, nothingAllowed(1), 1);
  return { ...toSandbox({ ...record, state: "running" }, "n1", 0), ...changes };
}

const cases: [string, SandboxFilter, Partial<Sandbox>, boolean][] = [
  ["no condition shows a live one", {}, {}, true],
  ["no condition hides an ended one", {}, { state: "stopped" }, false],
  ["all shows an ended one", { all: true }, { state: "lost" }, true],
  ["a state that is asked for is shown, also an ended one", { state: ["failed"] }, { state: "failed" }, true],
  ["states are alternatives", { state: ["paused", "running"] }, {}, true],
  ["another state is hidden", { state: ["paused"], all: true }, {}, false],
  ["a label by key", { label: ["job"] }, {}, true],
  ["a label that is missing", { label: ["user"] }, {}, false],
  ["a label by value", { label: ["job=7"] }, {}, true],
  ["a label with another value", { label: ["job=8"] }, {}, false],
  ["an empty value", { label: ["tier="] }, {}, true],
  ["a value that must not be", { label: ["job!=7"] }, {}, false],
  ["a missing label is not equal to anything", { label: ["user!=bob"] }, {}, true],
  ["all labels must hold", { label: ["job=7", "user"] }, {}, false],
  ["a value may contain =", { label: ["job=7=8"] }, { labels: { job: "7=8" } }, true],
  ["a key that every object has", { label: ["constructor"] }, {}, false],
  ["the owner", { owner: "alice" }, {}, true],
  ["another owner", { owner: "bob" }, {}, false],
  ["the name", { name: "web" }, {}, true],
  ["another name", { name: "we" }, {}, false],
  ["the beginning of the id", { prefix: "n1-aa" }, {}, true],
  ["the middle of the id", { prefix: "aa" }, {}, false],
  ["the backend", { backend: "simulated" }, {}, true],
  ["another backend", { backend: "container" }, {}, false],
];

test.each(cases)("a filter judges %s", (_what, filter, changes, expected) => {
  expect(compileFilter(filter).all(sandbox(changes))).toBe(expected);
});

test.each(["", "=v", "!=v", "!k"])("the label condition %j is refused", (label) => {
  expect(() => compileFilter({ label: [label] })).toThrowError(
    expect.objectContaining({ code: "invalid_argument" }),
  );
});

test("without its conditions on the state a filter still holds for an ended sandbox", () => {
  const match = compileFilter({ owner: "alice", state: ["running"] });
  expect(match.exceptState(sandbox({ state: "stopped" }))).toBe(true);
  expect(match.exceptState(sandbox({ owner: "bob" }))).toBe(false);
});
