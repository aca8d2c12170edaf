import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";

/** Second bytes of 10.0.0.0/8 that belong to the tests; the fleet's own default is not among them. */
const first = 100;
const blocks = 112;
let next = randomInt(blocks);

/** A /16 for sandboxes that no other node of this process has, nor anything else that is on this machine. */
export function freshNetworkRange(): string {
  const taken = secondBytesOfRoutes();
  for (let tried = 0; tried < blocks; tried += 1) {
    next = (next + 1) % blocks;
    if (!taken.has(first + next)) return `10.${first + next}.0.0/16`;
  }
  throw new Error("all address ranges of the tests are in use");
}

function secondBytesOfRoutes(): Set<number> {
  const destinations = readFileSync("/proc/net/route", "latin1")
    .split("\n")
    .map((line) => Buffer.from(line.split("\t")[1] ?? "", "hex").toReversed());
  return new Set(destinations.filter((address) => address[0] === 10).map((address) => address[1] ?? 0));
}
