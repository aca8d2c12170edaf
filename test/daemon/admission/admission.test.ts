import { expect, test } from "vitest";
import { type AdmissionPolicy, type NodeLoad, refusal } from "../../../src/daemon/admission/admission.ts";

const mib = 1_048_576;
const policy: AdmissionPolicy = {
  maxSandboxes: 10,
  memoryOvercommit: 2,
  memoryFloorBytes: 512 * mib,
  diskFloorBytes: 1024 * mib,
  maxMemoryPressure: 60,
};
const idle: NodeLoad = {
  sandboxes: 0,
  askedMemoryBytes: 0,
  memoryBytes: 8192 * mib,
  memoryAvailableBytes: 4096 * mib,
  diskBytes: 100_000 * mib,
  diskAvailableBytes: 50_000 * mib,
  memoryPressure: 0,
  cordoned: false,
};
const spec = { memoryMb: 1024 };
const half = (): number => 0.5;

test("a sandbox is let in up to the very limit of each resource", () => {
  const full: NodeLoad = {
    ...idle,
    sandboxes: 9,
    askedMemoryBytes: (2 * 8192 - 1024) * mib,
    memoryAvailableBytes: 512 * mib,
    diskAvailableBytes: 1024 * mib,
    memoryPressure: 60,
  };
  expect(refusal(spec, full, policy, half)).toBeUndefined();
});

test.each([
  ["cordoned", { cordoned: true }, "draining", { cordoned: true }],
  ["full by count", { sandboxes: 10 }, "admission_count", { sandboxes: 10, maxSandboxes: 10 }],
  [
    "asked for too much memory",
    { askedMemoryBytes: (2 * 8192 - 1023) * mib },
    "admission_memory",
    { askedBytes: (2 * 8192 + 1) * mib, limitBytes: 2 * 8192 * mib, memoryOvercommit: 2 },
  ],
  [
    "really short of memory",
    { memoryAvailableBytes: 511 * mib },
    "admission_memory",
    { availableBytes: 511 * mib, floorBytes: 512 * mib },
  ],
  [
    "short of disk",
    { diskAvailableBytes: 1023 * mib },
    "admission_disk",
    { availableBytes: 1023 * mib, floorBytes: 1024 * mib },
  ],
  [
    "under memory pressure",
    { memoryPressure: 61 },
    "admission_pressure",
    { memoryPressure: 61, maxMemoryPressure: 60 },
  ],
] as const)("a node that is %s refuses by name and with the numbers", (_what, load, code, details) => {
  expect(refusal(spec, { ...idle, ...load }, policy, half)).toMatchObject({ code, details, retryable: true });
});

test("a kernel without PSI refuses nothing for pressure", () => {
  expect(refusal(spec, { ...idle, memoryPressure: undefined }, policy, half)).toBeUndefined();
});

test("refusals ask for retries that are spread", () => {
  const full = { ...idle, sandboxes: 10 };
  const delays = [0, 0.5, 0.999].map((random) => refusal(spec, full, policy, () => random)?.retryAfterMs);
  expect(delays).toEqual([1000, 2000, 2998]);
});
