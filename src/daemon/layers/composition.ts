import { DSecError } from "../../protocol/errors.ts";
import type { ComposedLayer, LayerKind, SandboxSpec } from "../../protocol/sandbox.ts";
import type { ComposedRoot, ResolvedImage } from "../provisioner.ts";
import { maxLayers } from "./overlay-root.ts";

/** What a root is made of, resolved to what never changes. */
export interface Composition extends ComposedRoot {
  /** From the base upwards, as they were asked for. */
  readonly parts: readonly ComposedLayer[];
}

const flagOf: Readonly<Record<LayerKind, string>> = {
  base: "as the image",
  workspace: "with --workspace",
  toolkit: "with --toolkit",
};

/**
 * What lies over the base: the workspace, over that the toolkits in the order given. Each is resolved here, once.
 *
 * @throws DSecError `invalid_argument` when a part is not of the kind that its place asks for, `image_not_found`, `invalid_image_reference`
 */
export async function resolveUpperParts(
  { workspace, toolkits }: Pick<SandboxSpec, "workspace" | "toolkits">,
  resolve: (reference: string) => Promise<ResolvedImage | undefined>,
): Promise<ComposedLayer[]> {
  const parts: ComposedLayer[] = [];
  if (workspace !== undefined)
    parts.push(partOf("workspace", "workspace", await found(workspace, "workspace", resolve)));
  for (const toolkit of toolkits)
    parts.push(partOf("toolkits", "toolkit", await found(toolkit, "toolkit", resolve)));
  return parts;
}

/**
 * Composes a root.
 *
 * @param base what the spec's image stands for
 * @param upper of {@link resolveUpperParts}
 * @throws DSecError `invalid_argument` when the image is no base, `unsupported` for more layers than can be mounted
 */
export function compose(base: ResolvedImage, upper: readonly ComposedLayer[]): Composition {
  const parts = [partOf("image", "base", base), ...upper];
  const digests = parts.flatMap((part) => part.digests);
  // A layer under itself adds nothing, and the kernel refuses it: the uppermost one stays.
  const layers = digests.filter((digest, index) => !digests.includes(digest, index + 1));
  if (layers.length > maxLayers)
    throw new DSecError(
      "unsupported",
      `${layers.length} layers are more than one root can have: ${maxLayers}; merge some of them`,
      { details: { layers: layers.length, limit: maxLayers } },
    );
  return { parts, layers, config: base.config };
}

async function found(
  reference: string,
  kind: LayerKind,
  resolve: (reference: string) => Promise<ResolvedImage | undefined>,
): Promise<ResolvedImage> {
  const resolved = await resolve(reference);
  if (resolved !== undefined) return resolved;
  throw new DSecError(
    "image_not_found",
    `there is no ${kind} ${reference} in the layer store. Build it with: dsec layer build ${reference} --kind ${kind} --from DIR|TAR`,
    { details: { [kind]: reference } },
  );
}

function partOf(field: string, place: LayerKind, { reference, kind, layers }: ResolvedImage): ComposedLayer {
  if (kind !== place)
    throw new DSecError(
      "invalid_argument",
      `${field}: ${reference} is a ${kind}, not a ${place}: give it ${flagOf[kind]}`,
      { details: { reference, kind } },
    );
  return { reference, kind, digests: [...layers] };
}
