import { DSecError } from "../../../protocol/errors.ts";

/** Of an image whose content cannot be what it claims to be. */
export function imageInvalid(message: string, cause?: unknown): DSecError {
  return new DSecError("image_invalid", message, cause === undefined ? {} : { cause });
}
