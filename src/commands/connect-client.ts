import { readFile } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import { DSecClient } from "../sdk/client.ts";
import { readToken } from "../sdk/open-connection.ts";
import type { Settings } from "../sdk/settings.ts";

/** The client of the fleet that `settings` name; connects at its first call. */
export async function connectClient(settings: Settings): Promise<DSecClient> {
  return DSecClient.open({
    address: settings.address,
    token: settings.token ?? (await readToken(settings)),
    ca: settings.caFile === undefined ? undefined : await readAuthority(settings.caFile),
  });
}

async function readAuthority(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (cause) {
    throw new DSecError("config_invalid", `the certificate authority ${file} cannot be read`, { cause });
  }
}
