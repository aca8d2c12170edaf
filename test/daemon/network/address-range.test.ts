import { expect, test } from "vitest";
import { AddressRange } from "../../../src/daemon/network/address-range.ts";

test("a range knows its addresses by number", () => {
  const range = AddressRange.parse("10.213.0.0/16");
  expect([range.gateway, range.addressAt(256), range.size]).toEqual(["10.213.0.1", "10.213.1.0", 65_536]);
  expect(range.numberOf("10.213.255.255")).toBe(65_535);
  expect(range.numberOf("10.214.0.0")).toBeUndefined();
  expect(AddressRange.parse("192.168.255.0/24").addressAt(255)).toBe("192.168.255.255");
});

test.each([
  ["10.0.0.0", 8, true],
  ["10.213.4.7", 32, true],
  ["10.213.128.0", 17, true],
  ["10.212.0.0", 16, false],
  ["10.214.0.0", 15, false],
  ["192.168.0.0", 16, false],
  ["0.0.0.0", 0, true],
])("%s/%i overlaps 10.213.0.0/16: %s", (network, length, expected) => {
  expect(AddressRange.parse("10.213.0.0/16").overlaps(network, length)).toBe(expected);
});

test.each([
  "",
  "10.0.0.0",
  "10.0.0.0/7",
  "10.0.0.0/30",
  "10.0.0.1/24",
  "10.0.0/24",
  "256.0.0.0/8",
  "fd00::/64",
  "10.0.0.0/24/1",
  "10.0.0.0/1e1",
])("'%s' is refused with config_invalid", (text) => {
  expect(() => AddressRange.parse(text)).toThrow(expect.objectContaining({ code: "config_invalid" }));
});
