import type { World } from "./world.ts";

/** Something to do in a sandbox whose every result the model predicts. */
export interface Operation {
  readonly name: string;
  /** How often it comes, against the others. */
  readonly weight: number;
  /** Not for sandboxes that stay. */
  readonly endsSandbox?: true;
  /** @throws Mismatch, or whatever failed: both count as a mismatch */
  readonly run: (world: World) => Promise<void>;
}
