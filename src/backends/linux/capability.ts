import { readFileSync } from "node:fs";

/** Bit of a capability in the kernel's sets. */
export const Capability = { sysAdmin: 21, sysResource: 24 } as const;

/** Whether this process may use a capability: a container or a service manager can have taken it even from root. */
export function hasCapability(
  bit: number,
  status: string = readFileSync("/proc/self/status", "utf8"),
): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1];
  return effective !== undefined && ((BigInt(`0x${effective}`) >> BigInt(bit)) & 1n) === 1n;
}
