import { isIP } from "node:net";
import { covers, parseCidr } from "../../../protocol/cidr.ts";
import type { RegistryEndpoints } from "../policy/registry-table.ts";

/** What a registry's name was configured to stand for on this node. */
export interface Registry extends RegistryEndpoints {
  /** Who says so: this program, the node's package manager, the operator's file. */
  readonly source: "built-in" | "node" | "file";
  /** Base URL of the registry, ending in `/`: where its package manager is sent, and what a cut-off filters. */
  readonly upstream?: string;
  /** Milliseconds since the epoch; a release published later is not served. */
  readonly cutoff?: number;
}

export function matchesDomain(domain: string, name: string): boolean {
  return domain.startsWith("*.") ? name.endsWith(domain.slice(1)) : name === domain;
}

/** Whether sandboxes that may reach the registry may reach a host, by its name or address. */
export function standsFor({ domains, cidrs }: RegistryEndpoints, host: string): boolean {
  if (domains.some((domain) => matchesDomain(domain, host))) return true;
  const address = host.replace(/^\[(.*)\]$/, "$1");
  return isIP(address) !== 0 && cidrs.some((cidr) => covers(parseCidr(cidr), parseCidr(address)));
}

export type Registries = ReadonlyMap<string, Registry>;
