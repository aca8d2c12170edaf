import { join, relative } from "node:path";
import { referenceFile, type LayerReference } from "./reference.ts";

/** Where things are in a layer store; see {@link LayerStore} for what they are. */
export class StorePaths {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** Folders whose files name layers by digest: what is named there is kept. */
  get roots(): readonly string[] {
    return ["tags", "aliases"].map((folder) => join(this.directory, folder));
  }

  get blobs(): string {
    return join(this.directory, "blobs", "sha256");
  }

  get manifests(): string {
    return join(this.directory, "manifests");
  }

  get leases(): string {
    return join(this.directory, "leases");
  }

  get temporary(): string {
    return join(this.directory, "tmp");
  }

  blob(digest: string): string {
    return join(this.blobs, hexOf(digest));
  }

  manifest(digest: string): string {
    return join(this.manifests, `${hexOf(digest)}.json`);
  }

  reference(folder: "tags" | "aliases" | "provenance", reference: LayerReference): string {
    return join(this.directory, folder, ...referenceFile(reference));
  }

  /** Where a blob or manifest waits for its removal. */
  aside(path: string): string {
    return join(this.directory, "trash", relative(this.directory, path));
  }
}

const hexDigest = /^[0-9a-f]{64}$/;

export function hexOf(digest: string): string {
  return digest.slice("sha256:".length);
}

/** The digest that a file in a store is named by; undefined for a name that none has. */
export function digestOfName(name: string): string | undefined {
  const hex = name.replace(/\.json$/, "");
  return hexDigest.test(hex) ? `sha256:${hex}` : undefined;
}
