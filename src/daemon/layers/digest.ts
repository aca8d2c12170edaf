import { createHash } from "node:crypto";
import { z } from "zod";

export const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/, "must be sha256:<64 hexadecimal digits>");

/** `sha256:…` of `bytes`. */
export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
