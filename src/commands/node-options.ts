import { hostname } from "node:os";
import { dirname, resolve } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import { configPath } from "../sdk/config.ts";
import { readPem } from "../sdk/open-connection.ts";
import type { Settings } from "../sdk/settings.ts";
import { parseSeconds } from "./duration.ts";
import { choice, flag, many, parseCount, parseNumber, text, value } from "./option.ts";
import type { OptionValues } from "./option.ts";
import { defined } from "./sandbox-options.ts";
import { parseMebibytes } from "./size.ts";

/** Flags of a process that is a node: `up` and `daemon`. What is not given is the daemon's to decide; a test holds what is said of it here to that. */
export const nodeOptions = {
  layerStore: text(
    "--layer-store <dir>",
    "directory of the layer store, or rclone:REMOTE:PATH; <data>/layers unless given",
  ),
  networkRange: text(
    "--network-range <cidr>",
    "IPv4 range of the sandboxes' addresses; 10.213.0.0/16 unless given",
  ),
  registries: text(
    "--registries <file>",
    "what registries' names stand for in policies; registries.yaml beside the config file unless given",
  ),
  nameServers: many(
    "--name-server <address>",
    "asked for sandboxes' names instead of the node's own: address or address:port; may be repeated",
    (given) => given,
  ),
  caBundle: text("--ca-bundle <file>", "authorities that sandboxes trust beside their image's, PEM"),
  audit: flag("--audit", "record starts, ends and connects of processes in sandboxes, for dsec audit"),
  dockerSocket: text("--docker-socket <path>", "socket of the Docker daemon"),
  maxFlows: value("--max-flows <count>", "connections of a sandbox at a time", parseCount),
  maxSandboxes: value("--max-sandboxes <count>", "sandboxes at a time; 4096 unless given", parseCount),
  memoryOvercommit: value(
    "--memory-overcommit <factor>",
    "how many times the machine's memory may be asked for; 50 unless given",
    parseNumber,
  ),
  memoryFloor: value(
    "--memory-floor <size>",
    "free memory below which nothing new is taken; 512m unless given",
    parseMebibytes,
  ),
  diskFloor: value(
    "--disk-floor <size>",
    "free disk below which nothing new is taken; 1g unless given",
    parseMebibytes,
  ),
  keepEnded: value(
    "--keep-ended <duration>",
    "how long records and logs of ended sandboxes are kept; 1h unless given",
    parseSeconds,
  ),
  logLevel: choice("--log-level <level>", "fatal|error|warn|info|debug|trace|silent; info unless given", [
    "fatal",
    "error",
    "warn",
    "info",
    "debug",
    "trace",
    "silent",
  ]),
};

/** Flags of a process that listens on TCP. */
export const tlsOptions = {
  tlsCert: text("--tls-cert <file>", "certificate for https, PEM"),
  tlsKey: text("--tls-key <file>", "its key, PEM"),
};

/** The daemon's options that flags and settings ask for. */
export function nodeSettings(
  values: OptionValues<typeof nodeOptions>,
  settings: Settings,
  environment: Readonly<Record<string, string | undefined>>,
) {
  const { dataDir, runDir, instance } = settings;
  return {
    dataDir,
    runDir,
    instance,
    audit: values.audit,
    registries:
      values.registries === undefined
        ? { file: resolve(dirname(configPath(environment)), "registries.yaml"), optional: true }
        : { file: resolve(values.registries) },
    ...defined({
      layerStore: storeOf(values.layerStore),
      networkRange: values.networkRange,
      nameServers: values.nameServers.length === 0 ? undefined : [...values.nameServers],
      caBundle: values.caBundle === undefined ? undefined : resolve(values.caBundle),
      dockerSocket: values.dockerSocket,
      maxFlows: values.maxFlows,
      maxSandboxes: values.maxSandboxes,
      memoryOvercommit: values.memoryOvercommit,
      memoryFloorMb: values.memoryFloor,
      diskFloorMb: values.diskFloor,
      keepEnded: values.keepEnded,
      logLevel: values.logLevel,
    }),
  };
}

/** A directory's absolute path; a remote as it is. */
function storeOf(given: string | undefined): string | undefined {
  return given === undefined || given.startsWith("rclone:") ? given : resolve(given);
}

/** @throws DSecError `invalid_argument` for one without the other, `config_invalid` when one cannot be read */
export async function readTls({
  tlsCert,
  tlsKey,
}: OptionValues<typeof tlsOptions>): Promise<{ cert: string; key: string } | undefined> {
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsCert === undefined || tlsKey === undefined)
    throw new DSecError("invalid_argument", "--tls-cert and --tls-key go together");
  const [cert, key] = await Promise.all([tlsCert, tlsKey].map(readPem));
  return { cert: cert ?? "", key: key ?? "" };
}

/** This machine's name as a node's: a lower-case DNS label. */
export function defaultNodeName(): string {
  const [label = ""] = hostname().toLowerCase().split(".");
  return (
    label
      .replace(/[^a-z0-9-]/g, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 50) || "node"
  );
}
