import { availableParallelism } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { DSecError } from "../protocol/errors.ts";
import { NodeName } from "../protocol/names.ts";
import { AbsolutePath } from "../protocol/sandbox.ts";
import { AddressRange } from "./network/address-range.ts";
import { defaultMaxFlows } from "./network/firewall.ts";
import { parseNameServer } from "./network/gate/name-server.ts";

const Token = z.string().regex(/^[\x21-\x7e]{16,256}$/, "must be 16 to 256 printable characters");
const Address = z.string().max(512);

const NetworkRange = z.string().superRefine((text, context) => {
  try {
    AddressRange.parse(text);
  } catch (error) {
    context.addIssue(error instanceof Error ? error.message : String(error));
  }
});

const NameServerAddress = z.string().transform((text, context) => {
  const server = parseNameServer(text);
  if (server !== undefined) return server;
  context.addIssue(`'${text}' is no name server: it must be like 192.0.2.1 or 192.0.2.1:53`);
  return z.NEVER;
});

const rcloneStore = /^rclone:(?!-)[^\0\n]*:/;
const LayerStore = z
  .string()
  .max(4096)
  .refine(
    (text) => rcloneStore.test(text) || AbsolutePath.safeParse(text).success,
    "must be an absolute path or rclone:REMOTE:PATH",
  );

const Settings = z.strictObject({
  /** Of the node; every sandbox id begins with it. */
  name: NodeName,
  dataDir: AbsolutePath,
  runDir: AbsolutePath,
  /** Names what is machine-wide: cgroups, nftables table, interfaces, labels. */
  instance: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,30}$/, "must be at most 31 lower-case letters, digits or '-'")
    .default("dsec"),
  /** `unix:/path`, `http://127.0.0.1:port` or `https://host:port`; default `<runDir>/daemon.sock`. */
  listen: Address.optional(),
  /** PEM, for https. */
  tls: z.strictObject({ cert: z.string(), key: z.string() }).optional(),
  token: Token,
  /** A directory, or an object store as `rclone:REMOTE:PATH`; default `<dataDir>/layers`. */
  layerStore: LayerStore.optional(),
  /** IPv4 range of the sandboxes' addresses. */
  networkRange: NetworkRange.default("10.213.0.0/16"),
  /** Connections of a sandbox that its node keeps track of at a time. */
  maxFlows: z.int().min(64).max(65_536).default(defaultMaxFlows),
  /** What registries' names stand for, over what is built in and the node's package managers say. */
  registries: z
    .strictObject({
      file: AbsolutePath,
      /** Whether it may not be there. */ optional: z.boolean().default(false),
    })
    .optional(),
  /** Authorities that sandboxes trust beside their image's, PEM. */
  caBundle: AbsolutePath.optional(),
  /** Asked for sandboxes' names, instead of those of the node: `192.0.2.1` or `192.0.2.1:5353`, `[2001:db8::1]:5353`. */
  nameServers: z.array(NameServerAddress).min(1).max(8).optional(),
  /** Whether starts, ends and connects of processes in sandboxes are recorded. */
  audit: z.boolean().default(false),
  dockerSocket: AbsolutePath.optional(),
  /** What this node offers; without runc it prepares no roots, without docker either nothing on the machine. */
  backends: z.array(z.enum(["runc", "docker", "simulated"])).default(["runc", "docker", "simulated"]),
  maxSandboxes: z.int().min(1).max(100_000).default(4096),
  /** How many times the machine's memory may be asked for. */
  memoryOvercommit: z.number().min(0.01).max(10_000).default(50),
  /** MiB of memory and disk that must really be available for a new sandbox. */
  memoryFloorMb: z.int().min(0).default(512),
  diskFloorMb: z.int().min(0).default(1024),
  /** PSI some avg10 of memory, percent, above which nothing new is taken. */
  maxMemoryPressure: z.number().min(0).max(100).default(60),
  /** Seconds that records, logs and exit codes of ended sandboxes stay readable. */
  keepEnded: z.int().min(0).max(31_536_000).default(3600),
  maxEnded: z.int().min(0).max(1_000_000).default(10_000),
  /** Bytes kept of the beginning and of the end of recorded output, per exec. */
  logHeadBytes: z.int().min(4096).default(1_048_576),
  logTailBytes: z.int().min(4096).default(1_048_576),
  startTimeoutMs: z.int().min(1).default(120_000),
  /** Between SIGTERM and SIGKILL for the execs of a sandbox that is stopped. */
  stopGraceMs: z.int().min(0).default(2000),
  /** Starts of real sandboxes at a time. */
  concurrentStarts: z
    .int()
    .min(1)
    .default(() => Math.max(4, 2 * availableParallelism())),
  /** Without a sign of life from an exec's client for so long it is gone. */
  clientTimeoutMs: z.int().min(100).default(180_000),
  /** A file or archive of which nothing moves for so long is given up. */
  transferStallMs: z.int().min(100).default(60_000),
  /** Where to register; the address a coordinator reaches this daemon at, default the one it listens on. */
  coordinator: z.strictObject({ address: Address, token: Token, advertise: Address.optional() }).optional(),
  logLevel: z.enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"]).default("info"),
});

/** Everything a daemon can be told, and every default. */
export const DaemonOptions = Settings.transform((options) => ({
  ...options,
  listen: options.listen ?? `unix:${join(options.runDir, "daemon.sock")}`,
  layerStore: options.layerStore ?? join(options.dataDir, "layers"),
}));
export type DaemonOptions = z.output<typeof DaemonOptions>;
export type DaemonOptionsInput = z.input<typeof DaemonOptions>;

/** Fields whose flag has no unit in its name. */
const unit = /-m[bs]$/;

/**
 * Checks what a daemon is told, and adds the defaults.
 * @throws DSecError `config_invalid`: one line for each option that is wrong, by the name of its flag
 */
export function parseDaemonOptions(input: DaemonOptionsInput): DaemonOptions {
  const result = DaemonOptions.safeParse(input);
  if (result.success) return result.data;
  const lines = result.error.issues.map(({ path, message }) => `${flagOf(path)}: ${message}`);
  const [only = ""] = lines;
  if (lines.length === 1) throw new DSecError("config_invalid", only);
  const cause = lines.reduceRight<Error | undefined>(
    (inner, line) => new Error(line, inner && { cause: inner }),
    undefined,
  );
  throw new DSecError("config_invalid", `${lines.length} options are not valid`, { cause });
}

function flagOf(path: readonly PropertyKey[]): string {
  const words = path.map((part) => String(part).replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`));
  return `--${words.join(".").replace(unit, "")}`;
}
