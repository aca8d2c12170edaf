import { createHash } from "node:crypto";
import type { CachedFile } from "./file-cache.ts";

/** A document of a mirror, made once and served often. */
export interface MirrorDocument {
  readonly body: Buffer;
  readonly type: string;
  readonly etag: string;
}

export type MirrorAnswer =
  | { readonly kind: "document"; readonly document: MirrorDocument }
  | { readonly kind: "file"; readonly file: CachedFile }
  /** There is no such thing, or there was none by then. */
  | { readonly kind: "missing"; readonly message: string };

/** A registry as it was at its cut-off. */
export interface Mirror {
  /**
   * @param path decoded, without the leading slash
   * @param accept the request's Accept header
   */
  answer(path: string, accept: string): Promise<MirrorAnswer>;
  close(): void;
}

/** What a mirror of one registry is made from. */
export interface MirrorParts {
  /** Milliseconds since the epoch. */
  readonly cutoff: number;
  /** Where sandboxes reach it, ending in `/`. */
  readonly address: string;
  readonly now: () => number;
}

export function mirrorDocument(content: string, type: string): MirrorDocument {
  const body = Buffer.from(content);
  const digest = createHash("sha256").update(body).digest("base64url");
  return { body, type, etag: `"${digest}"` };
}

export const missing = (message: string): MirrorAnswer => ({ kind: "missing", message });
