import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";

/** A bearer token that nobody can guess. */
export function newToken(): string {
  return randomBytes(32).toString("hex");
}

/** @throws DSecError `config_invalid` when the file cannot be read */
export async function readTokenFile(file: string): Promise<string> {
  try {
    return (await readFile(file, "utf8")).trim();
  } catch (cause) {
    throw new DSecError("config_invalid", `the token file ${file} cannot be read`, { cause });
  }
}
