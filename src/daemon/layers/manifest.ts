import { z } from "zod";
import { LayerKind } from "../../protocol/sandbox.ts";
import { Digest } from "./digest.ts";
import { ImageManifest } from "./images/image-manifest.ts";

const Blob = z.object({ digest: Digest, bytes: z.int().min(0) });
export type Blob = z.infer<typeof Blob>;

/**
 * What a layer consists of. Its digest is the SHA-256 of {@link encodeManifest}'s bytes, so that a digest fixes the content
 * whoever stores it; nothing that changes from build to build (a time, a host) may stand in it.
 */
export const LayerManifest = z.object({
  schema: z.literal(1),
  kind: LayerKind,
  /** A multi-device EROFS: an image of metadata, which a node keeps on its own disk, and blobs of file content. */
  format: z.literal("erofs"),
  metadata: Blob,
  /** In the order of the image's devices. Empty: the image is self-contained. */
  data: z.array(Blob).max(16),
});
export type LayerManifest = z.infer<typeof LayerManifest>;

/** What lies in the store's folder of manifests. */
export const Manifest = z.discriminatedUnion("kind", [LayerManifest, ImageManifest]);
export type Manifest = z.infer<typeof Manifest>;

/** The manifest's bytes in the store. */
export function encodeManifest(manifest: LayerManifest): Buffer {
  const { schema, kind, format, metadata, data } = manifest;
  const blob = ({ digest, bytes }: Blob) => ({ digest, bytes });
  return Buffer.from(
    `${JSON.stringify({ schema, kind, format, metadata: blob(metadata), data: data.map(blob) })}\n`,
  );
}

/** Bytes of all blobs. */
export function layerBytes(manifest: LayerManifest): number {
  return [manifest.metadata, ...manifest.data].reduce((sum, blob) => sum + blob.bytes, 0);
}
