import { z } from "zod";
import { NodeName, SandboxId } from "./names.ts";

/**
 * How much of a layer's content was read on a node: what of its files is, or was, in the page cache. The kernel reads ahead, so a
 * little more than programs asked for is counted; what it evicted before it was looked at is not.
 */
export const LayerHeat = z.object({
  /** Regular files, and those of which anything is cached. */
  files: z.int(),
  filesRead: z.int(),
  /** Of all files. */
  bytes: z.int(),
  /** Of these cached when last looked at, and the most there was at any look since the layer was first used here. */
  cachedBytes: z.int(),
  peakBytes: z.int(),
  /** Milliseconds since the epoch of the last look. */
  sampledAt: z.number(),
});
export type LayerHeat = z.infer<typeof LayerHeat>;

/** A layer on a node. */
export const NodeLayer = z.object({
  node: NodeName,
  digest: z.string(),
  mounted: z.boolean(),
  /** Whose roots it is part of. */
  sandboxes: z.array(SandboxId),
  heat: LayerHeat.optional(),
});
export type NodeLayer = z.infer<typeof NodeLayer>;

export const NodeLayerList = z.object({
  items: z.array(NodeLayer),
  /** Nodes that did not answer: what they use is missing. */
  unreachable: z.array(z.string()).optional(),
});
export type NodeLayerList = z.infer<typeof NodeLayerList>;

/** Query of `GET /v1/layers`. */
export const LayerQuery = z.strictObject({
  /** Whether nodes look how much of the layers was read. */
  heat: z.boolean().default(false),
  /** Only these layers. */
  digest: z.array(z.string().max(100)).max(64).optional(),
});
export type LayerQuery = z.infer<typeof LayerQuery>;

/** Layers that nodes need not keep mounted for the next sandbox. */
export const LayerRelease = z.strictObject({
  digests: z.array(z.string().max(100)).max(4096),
});
export type LayerRelease = z.infer<typeof LayerRelease>;
