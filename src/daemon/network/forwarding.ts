import { readFileSync } from "node:fs";
import { isErrno } from "../../backends/linux/libc.ts";
import type { Finding } from "../resources/open-scratch.ts";
import { parseRouteTable } from "./node-routes.ts";

/** What keeps answers from coming back to sandboxes whose policies allow addresses: the links of the node's way out do not forward. */
export function forwardingFindings(): Finding[] {
  const routes = parseRouteTable(readFileSync("/proc/net/route", "latin1"));
  const links = new Set(routes.flatMap(({ prefixLength, link }) => (prefixLength === 0 ? [link] : [])));
  return [...links].flatMap((link) =>
    forwards(link)
      ? []
      : [
          {
            level: "info" as const,
            message: `${link} does not forward: what network policies allow by address is not reached through it, what they allow by name is`,
            fix: `sysctl -w net.ipv4.conf.${link}.forwarding=1`,
          },
        ],
  );
}

function forwards(link: string): boolean {
  try {
    return readFileSync(`/proc/sys/net/ipv4/conf/${link}/forwarding`, "latin1").trim() === "1";
  } catch (error) {
    if (isErrno(error, "ENOENT")) return true;
    throw error;
  }
}
