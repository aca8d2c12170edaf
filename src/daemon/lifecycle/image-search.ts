import type { Backend } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ComposedLayer, SandboxSpec } from "../../protocol/sandbox.ts";
import { compose, resolveUpperParts } from "../layers/composition.ts";
import type { NodeImports } from "../layers/images/node-imports.ts";
import { formatReference, parseImageReference } from "../layers/reference.ts";
import type { Provisioner, ResolvedImage } from "../provisioner.ts";
import type { ImageChoice } from "./image-choice.ts";

export interface ImageSources {
  readonly backends: readonly Backend[];
  /** Undefined where the node has no backend that needs it. */
  readonly provisioner: Provisioner | undefined;
  /** Undefined where there is no layer store, or one that can only be read. */
  readonly imports: Pick<NodeImports, "import"> | undefined;
}

type Place = "store" | "docker" | "registry";

const places: Readonly<Record<SandboxSpec["pull"], readonly Place[]>> = {
  missing: ["store", "docker", "registry"],
  always: ["registry"],
  never: ["store", "docker"],
};

/** What a registry's refusal of a name is worth that nobody said was that registry's. */
const asGoodAsMissing: ReadonlySet<string> = new Set([
  "image_not_found",
  "registry_denied",
  "registry_unreachable",
  "backend_unavailable",
]);

/** One search for a container's image: the layer store, the Docker daemon, the registry. */
export class ImageSearch {
  readonly #spec: SandboxSpec;
  readonly #sources: ImageSources;
  readonly #signal: AbortSignal;
  readonly #onProgress: (progress: string) => void;
  readonly #looked: string[] = [];
  #refusal: DSecError | undefined;
  #upper: Promise<readonly ComposedLayer[]> | undefined;

  /** @param onProgress called with what it is waiting for, for people */
  constructor(
    spec: SandboxSpec,
    sources: ImageSources,
    signal: AbortSignal,
    onProgress: (progress: string) => void,
  ) {
    this.#spec = spec;
    this.#sources = sources;
    this.#signal = signal;
    this.#onProgress = onProgress;
  }

  /** @throws DSecError `image_not_found`, `backend_unavailable`, `unsupported`, and those of an import */
  async run(): Promise<ImageChoice> {
    const { engine, image, pull } = this.#spec;
    if (engine === "runc" && this.#runc === undefined) throw unavailable("containers by runc");
    if (engine === "docker") {
      if (this.#docker?.findImage === undefined) throw unavailable("containers by docker");
      if (!this.#docker.capabilities.composes && isComposed(this.#spec)) throw cannotCompose();
    }
    const look = {
      store: () => this.#inStore(),
      docker: () => this.#inDocker(),
      registry: () => this.#inRegistry(),
    };
    for (const place of places[pull]) {
      const found = await look[place]();
      if (found !== undefined) return found;
    }
    throw new DSecError(
      "image_not_found",
      `there is no image ${image}: looked in ${this.#looked.join(" and in ")}. ${this.#remedy()}`,
      {
        details: { image, looked: this.#looked },
        ...(this.#refusal !== undefined && { cause: this.#refusal }),
      },
    );
  }

  #remedy(): string {
    const { engine, image } = this.#spec;
    if (engine === "docker") return `Bring it there with: docker pull ${image}`;
    return parseImageReference(image).layer === undefined
      ? `Import it with: dsec layer import ${image}`
      : `Build a layer with: dsec layer build ${layerName(image)} --from DIR|TAR|debian:SUITE`;
  }

  async #inStore(): Promise<ImageChoice | undefined> {
    if (this.#spec.engine === "docker") return undefined;
    if (this.#runc === undefined) {
      this.#looked.push("no layer store (this node does not offer runc)");
      return undefined;
    }
    this.#looked.push("the layer store");
    return this.#composed(this.#spec.image);
  }

  /** Where runc is asked for, or something is to lie over it, what the Docker daemon has is imported. */
  async #inDocker(): Promise<ImageChoice | undefined> {
    const { engine, image } = this.#spec;
    const backend = this.#docker;
    if (backend?.findImage === undefined) return undefined;
    const runsThere = engine !== "runc" && (backend.capabilities.composes || !isComposed(this.#spec));
    if (!runsThere && this.#importer === undefined) {
      this.#looked.push("no Docker daemon (its image would have to be imported)");
      return undefined;
    }
    try {
      const found = await backend.findImage(image, this.#signal);
      if (found !== undefined && runsThere) return { backend, composition: undefined, digest: found.digest };
      if (found !== undefined) {
        await this.#upperParts();
        return await this.#imported(`docker-daemon:${image}`);
      }
      this.#looked.push("the Docker daemon");
    } catch (error) {
      if (engine === "docker" || !(error instanceof DSecError) || error.code !== "backend_unavailable")
        throw error;
      this.#looked.push("no Docker daemon (none answers)");
    }
    return undefined;
  }

  async #inRegistry(): Promise<ImageChoice | undefined> {
    const { engine, image } = this.#spec;
    if (engine === "docker" || this.#runc === undefined) {
      // the Docker daemon pulls by itself
      const backend = this.#docker;
      if (backend === undefined || isComposed(this.#spec)) return undefined;
      return { backend, composition: undefined, digest: undefined };
    }
    if (this.#importer === undefined) {
      this.#looked.push(`no registry (${this.#cannotImport})`);
      return undefined;
    }
    const reference = parseImageReference(image).image;
    const [registry = ""] = reference.name.split("/");
    const isGiven = image.startsWith(reference.name);
    // what lacks a part is not worth an import
    await this.#upperParts();
    try {
      return await this.#imported(`docker://${formatReference(reference)}`);
    } catch (error) {
      const known = error instanceof DSecError ? error : undefined;
      if (
        known?.code !== "image_not_found" &&
        (isGiven || known === undefined || !asGoodAsMissing.has(known.code))
      )
        throw error;
      this.#looked.push(`the registry ${registry}`);
      this.#refusal = known;
      return undefined;
    }
  }

  async #imported(source: string): Promise<ImageChoice | undefined> {
    const name = formatReference(parseImageReference(this.#spec.image).image);
    await this.#importer?.import(source, this.#signal, ({ phase, bytes, totalBytes }) => {
      const part =
        totalBytes === undefined || totalBytes === 0 ? "" : `, ${Math.floor((100 * bytes) / totalBytes)}%`;
      this.#onProgress(`${phase} ${name}${part}`);
    });
    return this.#composed(name);
  }

  async #composed(reference: string): Promise<ImageChoice | undefined> {
    const { provisioner } = this.#sources;
    const backend = this.#runc;
    if (provisioner === undefined || backend === undefined) return undefined;
    const base = await provisioner.resolve(reference);
    if (base === undefined) return undefined;
    return { backend, composition: compose(base, await this.#upperParts()), digest: base.digest };
  }

  async #upperParts(): Promise<readonly ComposedLayer[]> {
    const resolve = async (name: string): Promise<ResolvedImage | undefined> =>
      this.#sources.provisioner?.resolve(name);
    return (this.#upper ??= resolveUpperParts(this.#spec, resolve));
  }

  get #importer(): ImageSources["imports"] {
    return this.#runc === undefined ? undefined : this.#sources.imports;
  }

  /** Why there is no {@link #importer}. */
  get #cannotImport(): string {
    return this.#runc === undefined
      ? "this node does not offer runc"
      : "the layer store can only be read: import the image elsewhere and publish it there";
  }

  get #runc(): Backend | undefined {
    return this.#sources.provisioner === undefined ? undefined : this.#container("runc");
  }

  get #docker(): Backend | undefined {
    return this.#container("docker");
  }

  #container(engine: "runc" | "docker"): Backend | undefined {
    return this.#sources.backends.find((known) => known.kind === "container" && known.engine === engine);
  }
}

/** @param what a node may lack */
export function unavailable(what: string): DSecError {
  return new DSecError("backend_unavailable", `this node cannot run ${what}; dsec doctor says why`);
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

function layerName(image: string): string {
  return image.includes(":") ? image : `${image}:VERSION`;
}
