/**
 * What the daemon prepares for a sandbox before a backend starts it: layers, scratch with a hard limit, the composed root and
 * a network namespace. Implemented by {@link LocalProvisioner}; fakes of it have no place in tests.
 */
import type { Json, PreparedLink, PreparedNetwork, PreparedRoot } from "../backends/backend.ts";
import type { LayerQuery, NodeLayer } from "../protocol/layer.ts";
import type { ImageConfig } from "./layers/images/image-manifest.ts";
import type { LayerKind } from "../protocol/sandbox.ts";

/** An image resolved to immutable layers. */
export interface ResolvedImage {
  readonly reference: string;
  /** Content digest of the layers together, `sha256:…`. */
  readonly digest: string;
  /** An image is a base. */
  readonly kind: LayerKind;
  /** From the base upwards. */
  readonly layers: readonly string[];
  /** Defaults below the sandbox's own; of a layer without an image, empty. */
  readonly config: ImageConfig;
}

/** Different layers, from the base upwards, and what the base says of processes. */
export type ComposedRoot = Pick<ResolvedImage, "layers" | "config">;

export interface PreparedSandbox {
  /** What {@link Provisioner.adopt} needs after a restart of the daemon. */
  readonly record: Json;
  readonly root: PreparedRoot;
  /** Of the image it was prepared from. */
  readonly config: ImageConfig;
  readonly network?: PreparedNetwork;
  /** Of one that was prepared by {@link Provisioner.link}. */
  readonly link?: PreparedLink;
  /** To be called once the backend has started: unmounts the root from the daemon's view and lets go of the namespace; both live on with the sandbox. */
  started(): Promise<void>;
  /** Whether a large file is better written past the page cache. */
  readonly prefersDirectWrites: boolean;
  /** Bytes written by the sandbox so far. */
  diskUsage(): Promise<number>;
  /** Whether the disk limit has been reached. */
  diskFull(): Promise<boolean>;
  /** Removes scratch, root, network and layer references. Idempotent; in any state. */
  release(): Promise<void>;
}

export interface Provisioner {
  /** The published layer that `reference` names, else the imported image; undefined where the store has neither. @throws DSecError `invalid_image_reference` */
  resolve(reference: string): Promise<ResolvedImage | undefined>;
  /**
   * @param diskBytes hard limit of what the sandbox may write
   * @throws DSecError `disk_full`, `backend_unavailable`, `cancelled`; nothing is left behind
   */
  prepare(
    id: string,
    root: ComposedRoot,
    options: { diskBytes: number; network: boolean },
    signal: AbortSignal,
  ): Promise<PreparedSandbox>;
  /**
   * A link alone, for a backend that has roots and network namespaces of its own.
   * @throws DSecError `no_capacity`, `backend_unavailable`, `cancelled`; nothing is left behind
   */
  link(id: string, signal: AbortSignal): Promise<PreparedSandbox>;
  /** What {@link prepare} or {@link link} made. */
  adopt(id: string, record: Json): Promise<PreparedSandbox>;
  /** Removes what is left of sandboxes not in `keep`; returns what it removed, by kind. Bounded, in the background. */
  sweep(
    keep: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<{ readonly kind: string; readonly name: string }[]>;
  /** Layers that are mounted or in use, with what is known of their heat if that is asked for. */
  layers(query: LayerQuery): Promise<Omit<NodeLayer, "node">[]>;
  /** Unmounts those of `digests` that no sandbox uses. @returns the others */
  releaseLayers(digests: readonly string[]): Promise<Omit<NodeLayer, "node">[]>;
  /** Bytes of the scratch file system. */
  disk(): Promise<{ totalBytes: number; availableBytes: number }>;
  close(): Promise<void>;
}
