import { DSecError } from "../../protocol/errors.ts";

/** `name:version` of a layer. */
export interface LayerReference {
  readonly name: string;
  readonly version: string;
}

const longestReference = 512;
const component = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const layerName = new RegExp(`^${component}$`);
const layerVersion = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
/** What registries call a reference: [host[:port]/]path[:tag][@digest]. */
const imageReference = new RegExp(
  `^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?${component}(?:/${component})*` +
    "(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?$",
);

/**
 * Reads an image reference. A bare `name` means `name:latest`.
 *
 * @returns undefined for a valid reference that no layer can have (with a registry, a path or a digest)
 * @throws DSecError `invalid_image_reference`
 */
export function parseImageReference(text: string): LayerReference | undefined {
  if (text.length > longestReference || !imageReference.test(text)) {
    throw new DSecError(
      "invalid_image_reference",
      `'${text.slice(0, 100)}' is not an image reference: it must be name or name:version, in lower case`,
    );
  }
  const [name = "", version = "latest", ...rest] = text.split(":");
  return rest.length === 0 && layerName.test(name) && name.length <= 128 && layerVersion.test(version)
    ? { name, version }
    : undefined;
}

/** Reads the reference of a layer that is to be published. @throws DSecError `invalid_image_reference` */
export function parseLayerReference(text: string): LayerReference {
  const reference = parseImageReference(text);
  if (reference === undefined) {
    throw new DSecError(
      "invalid_image_reference",
      `'${text}' cannot name a layer: it must be name or name:version, without a registry, a path or a digest`,
    );
  }
  return reference;
}

export function formatReference(reference: LayerReference): string {
  return `${reference.name}:${reference.version}`;
}
