import { expect, test } from "vitest";
import { shortcomingOf } from "../../../src/daemon/views/shortcoming.ts";
import type { BackendReport } from "../../../src/protocol/node.ts";

const simulated: BackendReport = { backend: "simulated", works: true, findings: [] };
const docker: BackendReport = { backend: "container", engine: "docker", works: true, findings: [] };
const runc: BackendReport = { backend: "container", engine: "runc", works: true, findings: [] };
const broken: BackendReport = {
  ...runc,
  works: false,
  findings: [
    { level: "info", message: "control groups: hybrid" },
    { level: "error", message: "runc is not installed", fix: "apt-get install -y runc" },
  ],
};

test("a node whose runc works falls short of nothing, whatever else does not", () => {
  expect(shortcomingOf([runc, { ...docker, works: false }, simulated])).toBeUndefined();
});

test("a node that was told to do without runc falls short of nothing", () => {
  expect(shortcomingOf([simulated])).toBeUndefined();
});

test("the first error says why containers do not work", () => {
  expect(shortcomingOf([broken, { ...docker, works: false }])).toBe(
    "containers do not work here: runc is not installed",
  );
});

test("where Docker's containers work it is runc's that do not", () => {
  expect(shortcomingOf([docker, broken])).toBe("containers by runc do not work here: runc is not installed");
});
