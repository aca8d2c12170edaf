import { homedir } from "node:os";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import type { ConfigFile, Connection, ConnectionKey } from "./config.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** What was given by flag or option; it goes before everything else. */
export interface GivenSettings extends Connection {
  readonly context?: string | undefined;
}

/** The fleet that is meant, or that `dsec up` is. */
export interface Settings {
  /** Name of the context in use, if one is. */
  readonly context: string | undefined;
  readonly address: string;
  /** DSEC_TOKEN; goes before the file. */
  readonly token: string | undefined;
  readonly tokenFile: string;
  /** Somebody named the file; else it is where a fleet of this machine leaves its own. */
  readonly isTokenFileNamed: boolean;
  readonly caFile: string | undefined;
  readonly dataDir: string;
  readonly runDir: string;
  readonly instance: string;
}

/**
 * Given, then environment, then context, then the file's top level, then what holds on this machine.
 * @throws DSecError `config_invalid` when the context is not in the file
 */
export function resolveSettings(
  given: GivenSettings,
  environment: Environment,
  config: ConfigFile,
): Settings {
  const context = given.context ?? (environment["DSEC_CONTEXT"] || config.currentContext);
  const ofContext = context === undefined ? {} : contextNamed(config, context);
  const pick = (key: ConnectionKey): string | undefined =>
    given[key] ??
    (environment[variableOf(key)] || undefined) ??
    fromFile(ofContext, key, config.path) ??
    fromFile(config.common, key, config.path);

  const dataDir = resolve(pick("data-dir") ?? defaultDataDir(environment));
  const runDir = resolve(pick("run-dir") ?? defaultRunDir(environment));
  const tokenFile = pick("token-file");
  return {
    context,
    address: pick("address") ?? `unix:${join(runDir, "coordinator.sock")}`,
    // a token file that was given is meant, whatever the environment holds
    token: given["token-file"] === undefined ? environment["DSEC_TOKEN"] || undefined : undefined,
    tokenFile: tokenFile ?? join(dataDir, "token"),
    isTokenFileNamed: tokenFile !== undefined,
    caFile: pick("ca-file"),
    dataDir,
    runDir,
    instance: pick("instance") ?? "dsec",
  };
}

function contextNamed(config: ConfigFile, name: string): Connection {
  const found = Object.hasOwn(config.contexts, name) ? config.contexts[name] : undefined;
  if (found !== undefined) return found;
  const known = Object.keys(config.contexts);
  throw new DSecError(
    "config_invalid",
    `${config.path} has no context ${JSON.stringify(name)}` +
      (known.length === 0 ? "" : `; it has ${known.join(", ")}`),
  );
}

/** `DSEC_TOKEN_FILE` of `token-file`. */
function variableOf(key: ConnectionKey): string {
  return `DSEC_${key.toUpperCase().replaceAll("-", "_")}`;
}

/** Paths in the file may begin with `~/`, and are relative to the file. */
function fromFile(connection: Connection, key: ConnectionKey, file: string): string | undefined {
  const value = connection[key];
  if (value === undefined || key === "address" || key === "instance") return value;
  if (value.startsWith("~/")) return join(homedir(), value.slice(2));
  return isAbsolute(value) ? value : join(dirname(file), value);
}

function defaultDataDir(environment: Environment): string {
  if (process.getuid?.() === 0) return "/var/lib/dsec";
  return join(environment["XDG_DATA_HOME"] || join(homedir(), ".local", "share"), "dsec");
}

/** Never below /tmp: who is quicker there would get our token. */
function defaultRunDir(environment: Environment): string {
  if (process.getuid?.() === 0) return "/run/dsec";
  const runtimeDir = environment["XDG_RUNTIME_DIR"];
  return runtimeDir ? join(runtimeDir, "dsec") : join(defaultDataDir(environment), "run");
}
