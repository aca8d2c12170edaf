import { DSecError } from "../../protocol/errors.ts";

/**
 * What the store knows a layer or an image by. Layers are `name:version`; an image keeps the name it has in its registry
 * (`docker.io/library/debian`), and its version is a tag or a digest.
 */
export interface LayerReference {
  readonly name: string;
  readonly version: string;
}

/** What a user means by an image. */
export interface ImageReference {
  /** The layer of that name; undefined where no layer can have it: with a registry, a path or a digest. */
  readonly layer: LayerReference | undefined;
  /** The image of that name, with what Docker adds to short ones. */
  readonly image: LayerReference;
}

const longestReference = 512;
/** Bytes of a file's name, which a name becomes. */
const longestName = 255;
const component = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const layerName = new RegExp(`^${component}$`);
const imagePath = new RegExp(`^${component}(?:/${component})*$`);
const layerVersion = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
/** What registries call a reference: [host[:port]/]path[:tag][@digest]. */
const imageReference = new RegExp(
  "^(?<name>" +
    `(?:(?<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?)/)?(?<path>${component}(?:/${component})*)` +
    ")(?::(?<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?<digest>sha256:[0-9a-f]{64}))?$",
);

const notAReference = "is not an image reference: it must be [registry/]name[:version], in lower case";
/** Where Docker looks for a name without a registry. */
const defaultRegistry = "docker.io";

/**
 * Reads an image reference. A bare `name` means `name:latest`; with a tag and a digest, the digest counts.
 *
 * @throws DSecError `invalid_image_reference`
 */
export function parseImageReference(text: string): ImageReference {
  const {
    name = "",
    host,
    path = "",
    tag = "latest",
    digest,
  } = (text.length <= longestReference ? imageReference.exec(text)?.groups : undefined) ?? {};
  if (path === "") throw invalid(text, notAReference);
  const image = { name: registryName(host, path), version: digest ?? tag };
  if (image.name.length > longestName)
    throw invalid(text, `is too long: a name has at most ${longestName} characters`);
  const isLayer = digest === undefined && layerName.test(name) && name.length <= 128;
  return { layer: isLayer ? { name, version: tag } : undefined, image };
}

/** As Docker does: what looks like a host is one, anything else is a path on Docker's own registry. */
function registryName(host: string | undefined, path: string): string {
  if (host !== undefined && (/[.:]/.test(host) || host === "localhost")) return `${host}/${path}`;
  const full = host === undefined ? path : `${host}/${path}`;
  if (!imagePath.test(full)) throw invalid(full, notAReference);
  return `${defaultRegistry}/${full.includes("/") ? full : `library/${full}`}`;
}

/** Reads the reference of a layer that is to be published. @throws DSecError `invalid_image_reference` */
export function parseLayerReference(text: string): LayerReference {
  const { layer } = parseImageReference(text);
  if (layer === undefined)
    throw invalid(
      text,
      "cannot name a layer: it must be name or name:version, without a registry, a path or a digest",
    );
  return layer;
}

export function formatReference({ name, version }: LayerReference): string {
  return `${name}${version.startsWith("sha256:") ? "@" : ":"}${version}`;
}

/** The names of directory and file that stand for a reference in the store. */
export function referenceFile({ name, version }: LayerReference): readonly [folder: string, file: string] {
  return [name.replaceAll("/", "+"), version];
}

/** The reference that {@link referenceFile} made the names of; undefined for what it cannot have made. */
export function referenceOfFile(folder: string, file: string): LayerReference | undefined {
  const name = folder.replaceAll("+", "/");
  const known = imageReference.test(name) && (layerVersion.test(file) || /^sha256:[0-9a-f]{64}$/.test(file));
  return known ? { name, version: file } : undefined;
}

function invalid(text: string, why: string): DSecError {
  return new DSecError("invalid_image_reference", `'${text.slice(0, 100)}' ${why}`);
}
