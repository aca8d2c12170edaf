import { configPath, readConfigFile } from "../sdk/config.ts";
import type { Connection, ConnectionKey } from "../sdk/config.ts";
import { resolveSettings } from "../sdk/settings.ts";
import type { Settings } from "../sdk/settings.ts";
import { flag, text } from "./option.ts";
import type { OptionValues } from "./option.ts";

/** Options of every verb: which fleet is meant. */
export const globalOptions = {
  context: text("--context <name>", "context of the config file to use (DSEC_CONTEXT)"),
  address: text(
    "--address <address>",
    "coordinator: unix:/path, http://127.0.0.1:port or https://host:port (DSEC_ADDRESS)",
  ),
  tokenFile: text(
    "--token-file <file>",
    "file with the bearer token (DSEC_TOKEN_FILE, or DSEC_TOKEN itself)",
  ),
  caFile: text("--ca-file <file>", "certificate authority of an https address, PEM (DSEC_CA_FILE)"),
  dataDir: text("--data-dir <dir>", "data of the local fleet (DSEC_DATA_DIR)"),
  runDir: text("--run-dir <dir>", "sockets and mounts of the local fleet (DSEC_RUN_DIR)"),
  instance: text("--instance <name>", "name of the local fleet's cgroups and tables (DSEC_INSTANCE)"),
  noColor: flag("--no-color", "no colours (NO_COLOR)"),
};

export type GlobalOptions = OptionValues<typeof globalOptions>;

/** Flag, then environment, then context, then the file's top level, then what holds on this machine. */
export async function loadSettings(
  flags: GlobalOptions,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<Settings> {
  const config = await readConfigFile(configPath(environment));
  return resolveSettings(
    {
      context: flags.context,
      ...given("address", flags.address),
      ...given("token-file", flags.tokenFile),
      ...given("ca-file", flags.caFile),
      ...given("data-dir", flags.dataDir),
      ...given("run-dir", flags.runDir),
      ...given("instance", flags.instance),
    },
    environment,
    config,
  );
}

function given(key: ConnectionKey, value: string | undefined): Connection {
  return value === undefined ? {} : { [key]: value };
}
