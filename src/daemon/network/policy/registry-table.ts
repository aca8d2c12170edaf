/** What a registry's name stands for on this node. */
export interface RegistryEndpoints {
  /** As in rules: `example.com` or `*.example.com`. */
  readonly domains: readonly string[];
  readonly cidrs: readonly string[];
  /** TCP, unless a rule says otherwise. */
  readonly ports: readonly number[];
}

/** By name. */
export type RegistryTable = ReadonlyMap<string, RegistryEndpoints>;
