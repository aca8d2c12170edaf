import { readFile } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import { isToken } from "../sdk/bearer-token.ts";

/** @throws DSecError `config_invalid` when the file cannot be read or holds no token */
export async function readTokenFile(file: string): Promise<string> {
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw new DSecError("config_invalid", `the token file ${file} cannot be read`, { cause });
  });
  const token = text.trim();
  if (!isToken(token)) throw new DSecError("config_invalid", `the token file ${file} holds no token`);
  return token;
}
