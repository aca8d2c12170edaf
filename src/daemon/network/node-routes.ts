import { readFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import type { AddressRange } from "./address-range.ts";

/** Something on the node that a range must not cover. */
export interface RangeConflict {
  /** As `ip route` or `ip address` shows it. */
  readonly description: string;
}

/** The first route or address of the node that lies in `range`; links of `linkPrefix` are the instance's own. */
export function findRangeConflict(range: AddressRange, linkPrefix: string): RangeConflict | undefined {
  for (const route of parseRouteTable(readFileSync("/proc/net/route", "latin1"))) {
    if (route.prefixLength === 0 || route.link.startsWith(linkPrefix)) continue;
    if (range.overlaps(route.network, route.prefixLength)) {
      const way = route.rejecting ? "unreachable" : `dev ${route.link}`;
      return { description: `the route ${route.network}/${route.prefixLength} ${way}` };
    }
  }
  for (const [link, addresses] of Object.entries(networkInterfaces())) {
    for (const { family, cidr } of addresses ?? []) {
      const [address = "", length = "32"] = (cidr ?? "").split("/");
      if (family === "IPv4" && range.overlaps(address, Number(length)))
        return { description: `the address ${cidr} of ${link}` };
    }
  }
  return undefined;
}

interface KernelRoute {
  readonly link: string;
  readonly network: string;
  readonly prefixLength: number;
  readonly rejecting: boolean;
}

const rejectFlag = 0x200;

/** Parses /proc/net/route: the main table. */
export function parseRouteTable(text: string): KernelRoute[] {
  const routes: KernelRoute[] = [];
  for (const line of text.split("\n").slice(1)) {
    const [link, destination, , flags, , , , mask] = line.trim().split(/\s+/);
    if (link === undefined || destination === undefined || flags === undefined || mask === undefined)
      continue;
    routes.push({
      link,
      network: [...Buffer.from(destination, "hex").reverse()].join("."),
      prefixLength: Number.parseInt(mask, 16).toString(2).replaceAll("0", "").length,
      rejecting: (Number.parseInt(flags, 16) & rejectFlag) !== 0,
    });
  }
  return routes;
}
