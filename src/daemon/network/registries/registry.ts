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

export type Registries = ReadonlyMap<string, Registry>;
