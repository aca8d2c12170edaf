import { isErrno } from "../../backends/linux/libc.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { digestOfFile } from "./file-digest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { LayerStore } from "./layer-store.ts";
import type { Blob } from "./manifest.ts";
import type { PublishedReference } from "./references.ts";

export interface VerifiedLayer {
  readonly reference: string;
  readonly digest: string;
  readonly status: "ok" | "corrupt" | "missing";
  /** That were read and are as they should be. */
  readonly bytes: number;
  /** What is wrong. */
  readonly message?: string;
}

type Finding = Pick<VerifiedLayer, "status" | "message">;

const fine: Finding = { status: "ok" };

/** Reads every byte of layers and compares it with the digests. A blob that several have is read once. */
export class LayerVerifier {
  readonly #store: LayerStore;
  readonly #signal: AbortSignal | undefined;
  readonly #findings = new Map<string, Finding>();

  constructor(store: LayerStore, signal?: AbortSignal) {
    this.#store = store;
    this.#signal = signal;
  }

  /** Of a layer, or of all layers of an image. @throws DSecError `cancelled`; what is wrong is in the result */
  async verify({ reference, digest }: PublishedReference): Promise<VerifiedLayer> {
    let bytes = 0;
    try {
      for (const blob of await this.#blobsOf(digest)) {
        throwIfCancelled(this.#signal);
        const finding = this.#findings.get(blob.digest) ?? (await this.#check(blob.digest, blob.bytes));
        this.#findings.set(blob.digest, finding);
        if (finding.status !== "ok") return { reference, digest, bytes, ...finding };
        bytes += blob.bytes;
      }
    } catch (error) {
      if (!(error instanceof DSecError) || error.code !== "layer_corrupt") throw error;
      return { reference, digest, bytes, status: "corrupt", message: error.message };
    }
    return { reference, digest, status: "ok", bytes };
  }

  async #blobsOf(digest: string): Promise<Blob[]> {
    const manifest = await this.#store.read(digest);
    if (manifest.kind !== "image") return [manifest.metadata, ...manifest.data];
    const blobs: Blob[] = [];
    for (const layer of manifest.layers) blobs.push(...(await this.#blobsOf(layer)));
    return blobs;
  }

  async #check(digest: string, bytes: number): Promise<Finding> {
    try {
      const found = await digestOfFile(this.#store.blobPath(digest), this.#signal);
      if (found.bytes !== bytes)
        return { status: "corrupt", message: `blob ${digest} has ${found.bytes} bytes, not ${bytes}` };
      if (found.digest !== digest)
        return { status: "corrupt", message: `blob ${digest} has the content of ${found.digest}` };
      return fine;
    } catch (error) {
      throwIfCancelled(this.#signal);
      if (isErrno(error, "ENOENT")) return { status: "missing", message: `blob ${digest} is not there` };
      return {
        status: "corrupt",
        message: `blob ${digest} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      };
    }
  }
}
