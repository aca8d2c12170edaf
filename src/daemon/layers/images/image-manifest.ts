import { z } from "zod";
import { Digest } from "../digest.ts";

/** More lower directories than these no overlay of the kernel's takes, with layers above the base counted in. */
const mostLayers = 400;

/** Characters of a step that are kept, and steps of an image. */
export const longestStep = 4096;
export const mostSteps = 1000;

/** What an image says of processes that do not say it themselves. */
export const ImageConfig = z.object({
  env: z.record(z.string(), z.string()),
  /** Name or id, optionally `:group`. */
  user: z.string().optional(),
  /** Absolute path. */
  workdir: z.string().optional(),
  /** Argument vectors; `cmd` are the entrypoint's arguments, or the command where there is none. */
  entrypoint: z.array(z.string()).optional(),
  cmd: z.array(z.string()).optional(),
});
export type ImageConfig = z.infer<typeof ImageConfig>;

/** A step of the image's making, as its builder wrote it down. */
export const ImageStep = z.object({
  /** Index of the layer that it went into, or that it follows where it changed no file. */
  layer: z.int().min(0),
  createdBy: z.string().max(longestStep),
  /** Absent where it changed no file. */
  files: z.literal(true).optional(),
  /** As it is written there. */
  createdAt: z.string().max(64).optional(),
});
export type ImageStep = z.infer<typeof ImageStep>;

/** Of a layer that was built, and so carries none. */
export const noConfig: ImageConfig = { env: {} };

/**
 * An imported image. It stands beside the layers' manifests, its `kind` tells it apart, and its digest is the SHA-256 of
 * {@link encodeImage}'s bytes.
 */
export const ImageManifest = z.object({
  schema: z.literal(1),
  kind: z.literal("image"),
  /** Digests of layer manifests, from the base upwards. */
  layers: z.array(Digest).min(1).max(mostLayers),
  config: ImageConfig,
  /** Where it came from: the reference as given, and the digest of the source's manifest (of Docker's: the image's id). */
  source: z.object({ reference: z.string(), digest: Digest }),
  /** In the order in which they were made; absent where its builder left none. */
  history: z.array(ImageStep).max(mostSteps).optional(),
});
export type ImageManifest = z.infer<typeof ImageManifest>;

/** The manifest's bytes in the store; the same whatever the order of its fields. */
export function encodeImage({ schema, kind, layers, config, source, history }: ImageManifest): Buffer {
  const { env, user, workdir, entrypoint, cmd } = config;
  const { reference, digest } = source;
  return Buffer.from(
    `${JSON.stringify({
      schema,
      kind,
      layers,
      config: { env, user, workdir, entrypoint, cmd },
      source: { reference, digest },
      history: history?.map(({ layer, createdBy, files, createdAt }) => ({
        layer,
        createdBy,
        files,
        createdAt,
      })),
    })}\n`,
  );
}
