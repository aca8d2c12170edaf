import { expect, test } from "vitest";
import { trackingFindings } from "../../../src/daemon/network/tracking.ts";

test("a node whose table of connections a few sandboxes can fill is told so, with what mends it", () => {
  expect(trackingFindings(2048, () => 262_144)).toEqual([]);
  expect(trackingFindings(2048, () => undefined)).toEqual([]);
  expect(trackingFindings(2048, () => 65_536)).toEqual([
    {
      level: "warning",
      message: "the node keeps track of 65536 connections, and a sandbox can take up 11776 of them",
      fix: "sysctl -w net.netfilter.nf_conntrack_max=94208",
    },
  ]);
});
