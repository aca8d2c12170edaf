import { randomInt } from "node:crypto";

/** Second bytes of 10.0.0.0/8 that belong to the tests; the fleet's own default is not among them. */
const first = 100;
const blocks = 112;
let next = randomInt(blocks);

/** A /16 for sandboxes that no other node of this process has. Tests of another process take theirs from a random place. */
export function freshNetworkRange(): string {
  next = (next + 1) % blocks;
  return `10.${first + next}.0.0/16`;
}
