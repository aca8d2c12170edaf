import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { DSecError } from "../../../protocol/errors.ts";
import { runProgram } from "../../resources/program.ts";
import { formatReference, parseImageReference, type LayerReference } from "../reference.ts";

/** Where an image comes from. */
export type ImageSource =
  | { readonly type: "registry"; readonly reference: LayerReference }
  | { readonly type: "daemon"; readonly reference: string; readonly name: LayerReference }
  /** A file or directory, as skopeo names it; `name` picks one of several images in it. */
  | {
      readonly type: "file";
      readonly transport: "oci" | "oci-archive" | "docker-archive";
      readonly path: string;
      readonly name: string | undefined;
    };

/**
 * The source that the user means: a reference, `docker://REFERENCE`, `docker-daemon:REFERENCE`, `oci:DIR[:NAME]`, `oci-archive:FILE[:NAME]`,
 * `docker-archive:FILE[:NAME]`, or the path of a layout or archive (with a slash: `./image.tar`).
 *
 * @throws DSecError `invalid_argument`, `invalid_image_reference`
 */
export async function imageSourceOf(text: string): Promise<ImageSource> {
  if (text.startsWith("docker://")) return registrySource(text.slice("docker://".length));
  if (text.startsWith("docker-daemon:")) {
    const reference = text.slice("docker-daemon:".length);
    return { type: "daemon", reference, name: parseImageReference(reference).image };
  }
  const file = /^(?<transport>oci|oci-archive|docker-archive):(?<path>[^:]+)(?::(?<name>.+))?$/s.exec(
    text,
  )?.groups;
  if (file !== undefined) {
    const transport = file["transport"] as "oci" | "oci-archive" | "docker-archive";
    return fileSource(transport, file["path"] ?? "", file["name"]);
  }
  if (!/^(?:\.{0,2}\/|\.{1,2}$)/.test(text)) return registrySource(text);
  return fileSource(await transportOf(text), text, undefined);
}

/** For people, and as an image's provenance. */
export function describeSource(source: ImageSource): string {
  switch (source.type) {
    case "registry":
      return `docker://${formatReference(source.reference)}`;
    case "daemon":
      return `docker-daemon:${formatReference(source.name)}`;
    case "file":
      return `${source.transport}:${source.path}${source.name === undefined ? "" : `:${source.name}`}`;
  }
}

function registrySource(text: string): ImageSource {
  return { type: "registry", reference: parseImageReference(text).image };
}

async function fileSource(
  transport: "oci" | "oci-archive" | "docker-archive",
  given: string,
  name: string | undefined,
): Promise<ImageSource> {
  const path = resolve(given);
  const found = await stat(path).catch((error: unknown) => {
    throw new DSecError("invalid_argument", `'${given}' is not there`, { cause: error });
  });
  if (transport === "oci" ? !found.isDirectory() : !found.isFile())
    throw new DSecError("invalid_argument", `'${given}' is no ${transport === "oci" ? "directory" : "file"}`);
  if (transport === "oci" && !existsSync(join(path, "index.json")))
    throw new DSecError(
      "invalid_argument",
      `'${given}' is no OCI layout; a plain tree becomes a layer with: dsec layer build NAME --from ${given}`,
    );
  // skopeo takes the rest for a name
  if (path.includes(":")) throw new DSecError("invalid_argument", `the path '${path}' must not contain ':'`);
  return { type: "file", transport, path, name };
}

/** What a path holds: a layout, or an archive of one, or one that docker saved. Docker's newer archives are both. */
async function transportOf(path: string): Promise<"oci" | "oci-archive" | "docker-archive"> {
  const found = await stat(path).catch((error: unknown) => {
    throw new DSecError("invalid_argument", `'${path}' is not there`, { cause: error });
  });
  if (found.isDirectory()) return "oci";
  const names = new Set<string>();
  try {
    await runProgram("tar", ["--list", `--file=${resolve(path)}`], {
      onOutputLine: (line) => {
        if (names.size < 10_000) names.add(line.replace(/^\.\//, ""));
      },
    });
  } catch (error) {
    throw new DSecError("invalid_argument", `'${path}' is not an archive of an image`, { cause: error });
  }
  if (names.has("manifest.json")) return "docker-archive";
  if (names.has("oci-layout")) return "oci-archive";
  throw new DSecError(
    "invalid_argument",
    `'${path}' is not an archive of an image; a plain tree becomes a layer with: dsec layer build NAME --from ${path}`,
  );
}
