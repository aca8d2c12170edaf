import { closeSync, openSync } from "node:fs";
import { expect, test } from "vitest";
import { linkUp, openRouteSocket } from "../../../src/backends/linux/netlink.ts";

test("a closed socket reaches nobody, least of all who has its number by then", () => {
  const socket = openRouteSocket();
  const { descriptor } = socket;
  socket.close();
  const other = openSync("/dev/null", "r+");
  expect(other).toBe(descriptor);
  expect(() => socket.request(linkUp(1, { arp: true }))).toThrow(expect.objectContaining({ code: "EBADF" }));
  expect(() => socket.receive()).toThrow(expect.objectContaining({ code: "EBADF" }));
  socket.close();
  closeSync(other);
});
