import { randomBytes } from "node:crypto";

/** A bearer token that nobody can guess. */
export function newToken(): string {
  return randomBytes(32).toString("hex");
}
