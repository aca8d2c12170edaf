import { expect, test } from "vitest";
import { AddressAllocator } from "../../../src/daemon/network/address-allocator.ts";
import { AddressRange } from "../../../src/daemon/network/address-range.ts";

const range = AddressRange.parse("10.1.2.0/29");

test("every address but the network's, the node's and the broadcast address is handed out once", () => {
  const addresses = new AddressAllocator(range, () => false);
  const taken = Array.from({ length: 5 }, () => range.addressAt(addresses.take()));
  expect(taken).toEqual(["10.1.2.2", "10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"]);
  expect(() => addresses.take()).toThrow(expect.objectContaining({ code: "no_capacity" }));
});

test("an address that was given back rests until all others were used", () => {
  const addresses = new AddressAllocator(range, () => false);
  addresses.release(addresses.take());
  expect([addresses.take(), addresses.take(), addresses.take(), addresses.take(), addresses.take()]).toEqual([
    3, 4, 5, 6, 2,
  ]);
});

test("an address is not used again while something on the node still has it", () => {
  const held = new Set([2]);
  const addresses = new AddressAllocator(range, (number) => held.has(number));
  for (let number = 2; number <= 6; number += 1) expect(addresses.take()).toBe(number);
  addresses.release(2);
  expect(() => addresses.take()).toThrow(expect.objectContaining({ code: "no_capacity" }));
  held.clear();
  expect(addresses.take()).toBe(2);
});

test("addresses of sandboxes from before a restart are not handed out", () => {
  const addresses = new AddressAllocator(range, () => false);
  addresses.hold(2);
  addresses.hold(4);
  expect([addresses.take(), addresses.take(), addresses.take()]).toEqual([3, 5, 6]);
  expect(addresses.isUsed(4)).toBe(true);
});
