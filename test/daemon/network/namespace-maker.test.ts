import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { AddressRange } from "../../../src/daemon/network/address-range.ts";
import { NamespaceMaker } from "../../../src/daemon/network/namespace-maker.ts";

test("the thread that makes namespaces ends whenever it is asked to, and leaves no descriptor", async () => {
  const maker = (): NamespaceMaker => new NamespaceMaker(AddressRange.parse("10.199.0.0/24"), 1);
  const first = maker();
  await first.deleteLinks(["dsec-nowhere"]);
  await first.close();
  await first.close();
  await expect(first.deleteLinks([])).rejects.toMatchObject({ code: "cancelled" });
  const before = readdirSync("/proc/self/fd").length;
  for (let round = 0; round < 5; round += 1) {
    const starting = maker();
    await starting.close();
    const busy = maker();
    const answer = busy.deleteLinks(["dsec-nowhere"]);
    await busy.close();
    await answer;
  }
  expect(readdirSync("/proc/self/fd").length).toBe(before);
});
