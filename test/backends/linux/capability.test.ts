import { expect, test } from "vitest";
import { Capability, hasCapability } from "../../../src/backends/linux/capability.ts";

test("a capability is found in the effective set only", () => {
  const status =
    "Name:\tnode\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\nCapBnd:\t000001ffffffffff\n";
  expect(hasCapability(Capability.sysAdmin, status)).toBe(true);
  expect(hasCapability(Capability.sysResource, status)).toBe(false);
  expect(hasCapability(Capability.sysAdmin, "")).toBe(false);
});
