import { DSecError } from "../protocol/errors.ts";
import { isToken } from "../sdk/bearer-token.ts";
import { DSecClient } from "../sdk/client.ts";
import { readPem, readToken } from "../sdk/open-connection.ts";
import type { Settings } from "../sdk/settings.ts";
import { readTokenFile } from "./token-file.ts";

/** The client of the fleet that `settings` name; connects at its first call. */
export async function connectClient(settings: Settings): Promise<DSecClient> {
  const { token } = settings;
  if (token !== undefined && !isToken(token))
    throw new DSecError("config_invalid", "DSEC_TOKEN holds no token");
  return DSecClient.open({
    address: settings.address,
    token: token ?? (await tokenOf(settings)),
    ca: settings.caFile === undefined ? undefined : await readPem(settings.caFile),
  });
}

/** That the local fleet has left no token means that none runs; a file that somebody named ought to be there. */
async function tokenOf(settings: Settings): Promise<string> {
  return settings.isTokenFileNamed ? readTokenFile(settings.tokenFile) : readToken(settings);
}
