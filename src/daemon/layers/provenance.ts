import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { hostname, userInfo } from "node:os";
import { dirname, join } from "node:path";
import { z } from "zod";
import { packageVersion } from "../version.ts";
import { Digest } from "./digest.ts";
import { moveDurably } from "./durable-file.ts";
import type { LayerReference } from "./reference.ts";
import type { StorePaths } from "./store-paths.ts";

/** Who published something under a name, when and from what. It is no part of the manifest: the same content has the same digest, whoever makes it. */
export const Provenance = z.object({
  schema: z.literal(1),
  /** Of the layer or image. */
  digest: Digest,
  /** `user@host`. */
  by: z.string(),
  /** Milliseconds since the epoch, by that host's clock. */
  at: z.number(),
  /** An absolute path, `debian:SUITE`, `busybox`, or an image's source. */
  from: z.string(),
  /** Of an archive's bytes, or of an image's manifest there. */
  fromDigest: Digest.optional(),
  /** `dsec VERSION`. */
  with: z.string(),
});
export type Provenance = z.infer<typeof Provenance>;

export type Origin = Pick<Provenance, "from" | "fromDigest">;

/** One file a name, in the store's folder `provenance`. Nothing depends on it: what cannot be read is not known. */
export class Provenances {
  readonly #paths: StorePaths;

  constructor(paths: StorePaths) {
    this.#paths = paths;
  }

  /**
   * Writes down that `digest` is about to be published here and now.
   *
   * @param work a directory of the store's file system
   * @returns what puts it in its place, to be called once the name is made
   */
  async prepare(
    reference: LayerReference,
    digest: string,
    origin: Origin,
    work: string,
  ): Promise<() => Promise<void>> {
    const path = this.#paths.reference("provenance", reference);
    const scratch = join(work, "provenance");
    const record: Provenance = {
      schema: 1,
      digest,
      by: `${userName()}@${hostname()}`,
      at: Date.now(),
      ...origin,
      with: `dsec ${packageVersion()}`,
    };
    await mkdir(dirname(path), { recursive: true });
    await writeFile(scratch, `${JSON.stringify(record)}\n`, { mode: 0o644 });
    return () => moveDurably(scratch, path);
  }

  /** Of what the reference stood for when it was made; undefined where it was moved since, or nothing is known. */
  async find(reference: LayerReference, digest: string): Promise<Provenance | undefined> {
    const text = await readFile(this.#paths.reference("provenance", reference), "utf8").catch(() => "null");
    const record = Provenance.safeParse(parse(text)).data;
    return record?.digest === digest ? record : undefined;
  }

  async remove(reference: LayerReference): Promise<void> {
    await rm(this.#paths.reference("provenance", reference), { force: true });
  }
}

/** Whoever became root by sudo is meant, not root. */
function userName(): string {
  const { SUDO_USER: before } = process.env;
  if (before !== undefined && before !== "") return before;
  try {
    return userInfo().username;
  } catch {
    // a user without an entry
    return String(process.geteuid?.() ?? "");
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
