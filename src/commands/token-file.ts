import { readFile } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";

/** @throws DSecError `config_invalid` when the file cannot be read */
export async function readTokenFile(file: string): Promise<string> {
  try {
    return (await readFile(file, "utf8")).trim();
  } catch (cause) {
    throw new DSecError("config_invalid", `the token file ${file} cannot be read`, { cause });
  }
}
