import { readFile } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import { isToken } from "./bearer-token.ts";
import { configPath, readConfigFile } from "./config.ts";
import { resolveSettings, type Settings } from "./settings.ts";

/** Which fleet a client speaks to. What is not given comes from the environment, then the config file, then this machine. */
export interface OpenOptions {
  /** `unix:/path`, `http://127.0.0.1:port` or `https://host:port`. Else DSEC_ADDRESS, the context's, the local fleet's socket. */
  readonly address?: string | undefined;
  /** Bearer token. Else DSEC_TOKEN, the context's token file, the local fleet's. */
  readonly token?: string | undefined;
  /** File that holds the token; read only where no token is given. */
  readonly tokenFile?: string | undefined;
  /** PEM of the authority behind an https address. */
  readonly ca?: string | Buffer | undefined;
  /** Context of the config file (`~/.config/dsec/config.yaml`, DSEC_CONFIG). Else DSEC_CONTEXT, the file's current one. */
  readonly context?: string | undefined;
  /** Instead of `process.env`. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

/** What a connection needs. */
export interface Connection {
  readonly address: string;
  readonly token: string;
  readonly ca: string | Buffer | undefined;
}

/** @throws DSecError `config_invalid`, `invalid_argument`, `unauthenticated` when no token can be found, `permission_denied` */
export async function resolveConnection(options: OpenOptions): Promise<Connection> {
  const { address, token, ca } = options;
  if (token !== undefined && !isToken(token))
    throw new DSecError("invalid_argument", "token: must be printable ASCII characters without spaces");
  if (address !== undefined && token !== undefined && options.context === undefined)
    return { address, token, ca };
  const environment = options.environment ?? process.env;
  const config = await readConfigFile(configPath(environment));
  const settings = resolveSettings(
    {
      ...(address === undefined ? {} : { address }),
      ...(options.tokenFile === undefined ? {} : { "token-file": options.tokenFile }),
      ...(options.context === undefined ? {} : { context: options.context }),
    },
    environment,
    config,
  );
  if (settings.token !== undefined && !isToken(settings.token))
    throw new DSecError("config_invalid", "DSEC_TOKEN holds no token: it must be printable ASCII characters");
  return {
    address: settings.address,
    token: token ?? settings.token ?? (await readToken(settings)),
    ca: ca ?? (settings.caFile === undefined ? undefined : await readPem(settings.caFile)),
  };
}

/** @throws DSecError `config_invalid` */
export async function readPem(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new DSecError("config_invalid", `${file} cannot be read`, { cause });
  }
}

/**
 * The local fleet's token, which opens everything, goes to no other fleet than one of this machine.
 * @throws DSecError `coordinator_unreachable` where the local fleet has left no token, `unauthenticated` where there is none for the address
 */
export async function readToken(settings: Settings): Promise<string> {
  const { address, isTokenFileNamed } = settings;
  if (address.startsWith("https:") && !isTokenFileNamed)
    throw new DSecError(
      "unauthenticated",
      `no token is known for ${address}: give it by --token-file, DSEC_TOKEN or the context`,
    );
  const token = await readTokenText(settings);
  if (!isToken(token)) throw new DSecError("unauthenticated", `${settings.tokenFile} holds no token`);
  return token;
}

async function readTokenText({ tokenFile, address }: Settings): Promise<string> {
  try {
    return (await readFile(tokenFile, "utf8")).trim();
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
    if (code === "EACCES")
      throw new DSecError("permission_denied", `the token in ${tokenFile} is not yours to read`, { cause });
    if (code === "ENOENT" && address.startsWith("unix:"))
      throw new DSecError("coordinator_unreachable", `no fleet runs here: start one with \`dsec up\``, {
        cause,
      });
    throw new DSecError("unauthenticated", `the token file ${tokenFile} cannot be read`, { cause });
  }
}
