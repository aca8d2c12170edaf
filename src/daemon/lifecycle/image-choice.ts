import type { Backend } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { Engine, SandboxSpec } from "../../protocol/sandbox.ts";
import { compose, type Composition } from "../layers/composition.ts";
import type { Provisioner } from "../provisioner.ts";

/** Where a sandbox will run and from what. */
export interface ImageChoice {
  readonly backend: Backend;
  /** Of backends with a prepared root. */
  readonly composition: Composition | undefined;
  /** What the image's tag stood for. */
  readonly digest: string | undefined;
}

export interface ImageSources {
  readonly backends: readonly Backend[];
  /** Undefined where the node has no backend that needs it. */
  readonly provisioner: Provisioner | undefined;
}

/**
 * The asked engine; else runc where the layer store has the image; else docker where its daemon has it.
 * @throws DSecError `image_not_found`, `backend_unavailable`, `invalid_image_reference`, `invalid_argument`
 */
export async function chooseImage(
  spec: SandboxSpec,
  sources: ImageSources,
  signal: AbortSignal,
): Promise<ImageChoice> {
  if (spec.backend !== "container") {
    if (spec.engine !== undefined)
      throw new DSecError("invalid_argument", `engine: only containers have an engine, not ${spec.backend}`);
    const backend = find(sources, spec);
    return { backend, composition: undefined, digest: undefined };
  }
  const looked: string[] = [];
  for (const engine of spec.engine === undefined ? (["runc", "docker"] as const) : [spec.engine]) {
    const found = await lookIn(engine, spec, sources, signal, looked);
    if (found !== undefined) return found;
  }
  throw new DSecError(
    "image_not_found",
    `there is no image ${spec.image}: looked in ${looked.join(" and in ")}. Build a layer with: dsec layer build ${layerName(spec.image)} --from DIR|TAR|debian:SUITE`,
    { details: { image: spec.image, looked } },
  );
}

async function lookIn(
  engine: Engine,
  spec: SandboxSpec,
  sources: ImageSources,
  signal: AbortSignal,
  looked: string[],
): Promise<ImageChoice | undefined> {
  const backend = sources.backends.find(
    (candidate) => candidate.kind === "container" && candidate.engine === engine,
  );
  const explicit = spec.engine !== undefined;
  if (engine === "runc") {
    if (backend === undefined || sources.provisioner === undefined) {
      if (explicit) throw unavailable("containers by runc");
      looked.push("no layer store (this node does not offer runc)");
      return undefined;
    }
    const { provisioner } = sources;
    const base = await provisioner.resolve(spec.image);
    if (base !== undefined) {
      const composition = await compose(base, spec, (reference) => provisioner.resolve(reference));
      return { backend, composition, digest: base.digest };
    }
    looked.push("the layer store");
    return undefined;
  }
  if (backend?.findImage === undefined) {
    if (explicit) throw unavailable("containers by docker");
    return undefined;
  }
  if (!backend.capabilities.composes && isComposed(spec)) {
    if (explicit) throw cannotCompose();
    looked.push("no Docker daemon (nothing can be laid over its images)");
    return undefined;
  }
  try {
    const image = await backend.findImage(spec.image, signal);
    // an image that docker is explicitly asked for may still be pulled
    if (image !== undefined || explicit) return { backend, composition: undefined, digest: image?.digest };
    looked.push("the Docker daemon");
  } catch (error) {
    if (explicit || !(error instanceof DSecError) || error.code !== "backend_unavailable") throw error;
    looked.push("no Docker daemon (none answers)");
  }
  return undefined;
}

function isComposed({ workspace, toolkits }: SandboxSpec): boolean {
  return workspace !== undefined || toolkits.length > 0;
}

function cannotCompose(): DSecError {
  return new DSecError(
    "unsupported",
    "the docker engine runs the images of a Docker daemon, which lays no further layers over them: a workspace and toolkits need engine runc",
  );
}

function find(sources: ImageSources, spec: SandboxSpec): Backend {
  const backend = sources.backends.find((candidate) => candidate.kind === spec.backend);
  if (backend === undefined) throw unavailable(`sandboxes of kind ${spec.backend}`);
  return backend;
}

function unavailable(what: string): DSecError {
  return new DSecError("backend_unavailable", `this node cannot run ${what}; dsec doctor says why`);
}

function layerName(image: string): string {
  return image.includes(":") ? image : `${image}:VERSION`;
}
