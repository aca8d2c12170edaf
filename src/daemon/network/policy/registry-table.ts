import type { PortRange } from "../../../protocol/network-policy.ts";

/** What a registry's name stands for on this node. */
export interface RegistryEndpoints {
  /** As in rules: `example.com` or `*.example.com`. */
  readonly domains: readonly string[];
  readonly cidrs: readonly string[];
  /** TCP, unless a rule says otherwise. */
  readonly ports: readonly PortRange[];
}

/** By name. */
export type RegistryTable = ReadonlyMap<string, RegistryEndpoints>;
