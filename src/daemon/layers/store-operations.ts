import type { LayerHeat } from "../../protocol/layer.ts";
import type { ResolvedImage } from "../provisioner.ts";

/** How this node works with a store. Absolute paths, without symlinks. */
export interface NodeStoreOptions {
  readonly directory: string;
  /** Whether the store is made where it is not there. */
  readonly create: boolean;
  /** Where layers are mounted, each at its digest's hexadecimal digits. */
  readonly mounts: string;
  /** Of the node's copies of metadata, on its own disk. */
  readonly metadata: string;
  /** File of what was seen of layers' heat. */
  readonly heat: string;
  /** Of its leases: `<node>+<what tells nodes of that name apart>`. */
  readonly owner: string;
}

/** What is done with a store on behalf of a node, by a process of its own: see {@link StoreProcess}. */
export interface StoreOperations {
  /** @throws DSecError `invalid_image_reference`, `layer_corrupt`, `layer_store_unavailable` */
  resolve(reference: string): Promise<ResolvedImage | undefined>;
  /** Mounts a layer, unless it is mounted, and leases it. @throws DSecError `layer_corrupt` naming it, `layer_store_unavailable`, `backend_unavailable`, `disk_full` */
  mount(digest: string): Promise<void>;
  unmount(digest: string): Promise<void>;
  /** Whether a mount was made from the files that the store has now; of one that an earlier process made that is believed once. @throws DSecError `layer_store_unavailable` */
  isSound(digest: string): Promise<boolean>;
  /** Detaches a mount whose files are lost, and mounts the layer again; sandboxes keep the mount they have. */
  remount(digest: string): Promise<void>;
  /** A sign of life, and the right leases. */
  refresh(): Promise<void>;
  /** Looks at a mounted layer. */
  heat(digest: string): Promise<LayerHeat>;
  /** What was seen of layers so far, by digest; it is written down. */
  heats(): Promise<Readonly<Record<string, LayerHeat>>>;
  /** Where no layer is mounted any more: takes the node's leases away. */
  close(): Promise<void>;
}

export type StoreOperation = keyof StoreOperations;
