import { z } from "zod";
import { DSecError } from "../../../protocol/errors.ts";
import { Digest } from "../digest.ts";
import { longestStep, mostSteps, type ImageConfig, type ImageStep } from "./image-manifest.ts";

const Descriptor = z.object({ mediaType: z.string(), digest: Digest, size: z.int().min(0) });

/** Of the OCI and of Docker's second schema; what else there is in them concerns nobody here. */
const OciManifest = z.object({
  mediaType: z.string().optional(),
  config: Descriptor,
  layers: z.array(Descriptor).max(1000),
});
export type OciManifest = z.infer<typeof OciManifest>;

const Platform = z.object({ os: z.string(), architecture: z.string(), variant: z.string().optional() });
const OciIndex = z.object({
  manifests: z.array(Descriptor.extend({ platform: Platform.optional() })).max(10_000),
});

const Config = z.object({
  os: z.string().optional(),
  config: z
    .object({
      Env: z.array(z.string()).nullish(),
      User: z.string().nullish(),
      WorkingDir: z.string().nullish(),
      Entrypoint: z.array(z.string()).nullish(),
      Cmd: z.array(z.string()).nullish(),
    })
    .nullish(),
  rootfs: z.object({ diff_ids: z.array(Digest).max(1000) }),
  // for people: an image is none the worse for a strange one
  history: z
    .array(
      z.object({
        created: z.string().max(64).nullish(),
        created_by: z.string().nullish(),
        empty_layer: z.boolean().nullish(),
      }),
    )
    .nullish()
    .catch(undefined),
});

const configTypes = /^application\/vnd\.(?:oci\.image\.config\.v1|docker\.container\.image\.v1)\+json$/;
const layerTypes =
  /^application\/vnd\.(?:oci\.image\.layer\.(?:nondistributable\.)?v1\.tar|docker\.image\.rootfs\.(?:foreign\.)?diff\.tar)(?:[.+](?:gzip|zstd))?$/;

/** What a registry names by a tag: an image, or a list of them for several platforms. */
export type OciReference =
  | { readonly type: "image"; readonly manifest: OciManifest }
  | { readonly type: "index"; readonly digest: string };

/**
 * Reads a manifest; of a list, the digest of this machine's entry.
 *
 * @throws DSecError `unsupported_media_type`, `image_invalid`
 */
export function readOciReference(bytes: Buffer): OciReference {
  const json = parseJson(bytes);
  const index = OciIndex.safeParse(json);
  if (index.success) return { type: "index", digest: entryForHere(index.data) };
  const manifest = OciManifest.safeParse(json);
  if (!manifest.success)
    throw new DSecError(
      "unsupported_media_type",
      "the manifest is neither OCI's nor Docker's second schema",
      {
        cause: manifest.error,
      },
    );
  checkTypes(manifest.data);
  return { type: "image", manifest: manifest.data };
}

/** The only entry of the index of a layout that was copied to. @throws DSecError `image_invalid` */
export function readLayoutIndex(bytes: Buffer): string {
  const [only] = OciIndex.parse(parseJson(bytes)).manifests;
  if (only === undefined) throw new DSecError("image_invalid", "the layout is empty");
  return only.digest;
}

/** @throws DSecError `image_invalid`, `unsupported` for another operating system's */
export function readOciConfig(bytes: Buffer): {
  readonly config: ImageConfig;
  readonly diffIds: readonly string[];
  /** By the image's own layers. */
  readonly history: readonly ImageStep[];
} {
  const parsed = Config.safeParse(parseJson(bytes));
  if (!parsed.success)
    throw new DSecError("image_invalid", "the image's configuration cannot be read", { cause: parsed.error });
  const { os = "linux", config, rootfs, history } = parsed.data;
  if (os !== "linux" && os !== "")
    throw new DSecError("unsupported", `the image is for ${os}, not for linux`);
  const { Env, User, WorkingDir, Entrypoint, Cmd } = config ?? {};
  return {
    diffIds: rootfs.diff_ids,
    history: stepsOf(history ?? [], rootfs.diff_ids.length),
    config: {
      env: environment(Env ?? []),
      ...(User && { user: User }),
      // as docker does: relative to the root
      ...(WorkingDir && { workdir: WorkingDir.startsWith("/") ? WorkingDir : `/${WorkingDir}` }),
      ...(Entrypoint?.length && { entrypoint: Entrypoint }),
      ...(Cmd?.length && { cmd: Cmd }),
    },
  };
}

/** None where they are not those of `layers` layers. */
function stepsOf(history: NonNullable<z.infer<typeof Config>["history"]>, layers: number): ImageStep[] {
  let made = 0;
  const steps = history.map(({ created, created_by: by, empty_layer: isEmpty }): ImageStep => {
    if (isEmpty !== true) made += 1;
    return {
      layer: Math.max(0, made - 1),
      createdBy: (by ?? "").slice(0, longestStep),
      ...(isEmpty !== true && { files: true }),
      ...(created && { createdAt: created }),
    };
  });
  return made === layers ? steps.slice(0, mostSteps) : [];
}

function environment(entries: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    entries
      .map((entry): [string, string] => {
        const at = entry.indexOf("=");
        return at === -1 ? [entry, ""] : [entry.slice(0, at), entry.slice(at + 1)];
      })
      .filter(([name]) => name !== ""),
  );
}

function entryForHere({ manifests }: z.infer<typeof OciIndex>): string {
  const architecture = architectureOf(process.arch);
  const fits = manifests.filter(
    ({ platform }) => platform?.os === "linux" && platform.architecture === architecture,
  );
  const [only] = manifests;
  const found = fits.at(0) ?? (manifests.length === 1 && only?.platform === undefined ? only : undefined);
  if (found !== undefined) return found.digest;
  const offered = manifests.map(({ platform }) => `${platform?.os ?? "?"}/${platform?.architecture ?? "?"}`);
  throw new DSecError(
    "unsupported",
    `the image is not for linux/${architecture}, only for ${[...new Set(offered)].slice(0, 10).join(", ")}`,
  );
}

function architectureOf(arch: string): string {
  return arch === "x64" ? "amd64" : arch;
}

function checkTypes({ config, layers }: OciManifest): void {
  const strange = [
    ...(configTypes.test(config.mediaType) ? [] : [config.mediaType]),
    ...layers.map(({ mediaType }) => mediaType).filter((mediaType) => !layerTypes.test(mediaType)),
  ];
  const [first] = strange;
  if (first !== undefined)
    throw new DSecError(
      "unsupported_media_type",
      `this is no image of a file system: it holds ${first.slice(0, 200)}`,
      {
        details: { mediaTypes: [...new Set(strange)].slice(0, 10) },
      },
    );
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch (error) {
    throw new DSecError("image_invalid", "what should be JSON is not", { cause: error });
  }
}
