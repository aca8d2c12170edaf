import type { Backend } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { SandboxSpec } from "../../protocol/sandbox.ts";
import type { Composition } from "../layers/composition.ts";
import { ImageSearch, unavailable, type ImageSources } from "./image-search.ts";

/** Where a sandbox will run and from what. */
export interface ImageChoice {
  readonly backend: Backend;
  /** Of backends with a prepared root. */
  readonly composition: Composition | undefined;
  /** What the image's tag stood for. */
  readonly digest: string | undefined;
}

/**
 * The published layer or imported image of that name; else docker where its daemon has it; else what the registry has, imported.
 *
 * @param onProgress called with what it is waiting for, for people
 * @throws DSecError `image_not_found`, `backend_unavailable`, `invalid_image_reference`, `invalid_argument`, and those of an import
 */
export async function chooseImage(
  spec: SandboxSpec,
  sources: ImageSources,
  signal: AbortSignal,
  onProgress: (progress: string) => void,
): Promise<ImageChoice> {
  if (spec.backend === "container") {
    const choice = await new ImageSearch(spec, sources, signal, onProgress).run();
    if (spec.entrypoint) serviceOf(choice);
    return choice;
  }
  if (spec.engine !== undefined)
    throw new DSecError("invalid_argument", `engine: only containers have an engine, not ${spec.backend}`);
  if (spec.entrypoint)
    throw new DSecError(
      "invalid_argument",
      `entrypoint: only containers have an image's, not ${spec.backend}`,
    );
  const backend = sources.backends.find((candidate) => candidate.kind === spec.backend);
  if (backend === undefined) throw unavailable(`sandboxes of kind ${spec.backend}`);
  return { backend, composition: undefined, digest: undefined };
}

/**
 * The command that an image starts by itself: its entrypoint with its command as arguments.
 *
 * @throws DSecError `invalid_argument` when it has none, `unsupported` under an engine that does not tell
 */
export function serviceOf({ composition }: ImageChoice): string[] {
  if (composition === undefined)
    throw new DSecError(
      "unsupported",
      "entrypoint: the docker engine starts no image's entrypoint; use engine runc",
    );
  const { entrypoint = [], cmd = [] } = composition.config;
  const argv = [...entrypoint, ...cmd];
  if (argv.length > 0) return argv;
  const [image] = composition.parts;
  throw new DSecError(
    "invalid_argument",
    `entrypoint: ${image?.reference ?? "the image"} has no entrypoint and no command`,
  );
}
