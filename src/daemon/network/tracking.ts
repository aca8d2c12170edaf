import { readFileSync } from "node:fs";
import { isErrno } from "../../backends/linux/libc.ts";
import type { Finding } from "../resources/open-scratch.ts";
import { newFlows } from "./firewall.ts";

const setting = "/proc/sys/net/netfilter/nf_conntrack_max";
/** Seconds that the kernel keeps track of a connection after its end. */
const keptSeconds = 120;
/** Sandboxes that must not be able to take up all of it together. */
const fewest = 8;

/** What a few sandboxes could take away from all: the node keeps track of no more connections than they may have. */
export function trackingFindings(maxFlows: number, read = readSetting): Finding[] {
  const tracked = read();
  const { perSecond, burst } = newFlows(maxFlows);
  // Those that are open, and those that have ended and are not forgotten yet.
  const most = maxFlows + burst + keptSeconds * perSecond;
  if (tracked === undefined || tracked >= fewest * most) return [];
  return [
    {
      level: "warning",
      message: `the node keeps track of ${tracked} connections, and a sandbox can take up ${most} of them`,
      fix: `sysctl -w net.netfilter.nf_conntrack_max=${fewest * most}`,
    },
  ];
}

/** Undefined where nothing is tracked yet. */
function readSetting(): number | undefined {
  try {
    return Number(readFileSync(setting, "latin1"));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}
