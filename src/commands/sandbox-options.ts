import { readFile } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import type { Engine, PullPolicy, ResourceClass, SandboxSpecInput } from "../protocol/sandbox.ts";
import { parseSeconds } from "./duration.ts";
import type { Io } from "./io.ts";
import { parseEnvFile, parseEnvSetting, parseKeyValue } from "./key-value.ts";
import { choice, flag, many, parseCount, parseNumber, text, value } from "./option.ts";
import type { OptionValues } from "./option.ts";
import { backendOption } from "./selection.ts";
import { parseMebibytes } from "./size.ts";

/** Flags that say whom and where a command runs as, and with which environment: of `run` and `exec`. */
export const processOptions = {
  env: many(
    "-e, --env <name=value>",
    "environment variable; without a value, the one here",
    (given) => given,
  ),
  envFile: many("--env-file <file>", "file of environment variables, one a line", (given) => given),
  user: text("-u, --user <user>", "user name or uid, optionally with :group"),
  workdir: text("-w, --workdir <dir>", "working directory"),
};

/** Flags that say what a sandbox is. What is not given is the fleet's to decide; a test holds what is said of it here to the protocol's defaults. */
export const sandboxOptions = {
  workspace: text("--workspace <layer>", "layer of kind workspace, over the image"),
  toolkits: many(
    "--toolkit <layer>",
    "layer of kind toolkit, over what is before it; may be repeated",
    (given) => given,
  ),
  name: text("--name <name>", "name of the sandbox; unique on the fleet"),
  labels: many("-l, --label <key=value>", "label; may be repeated", parseKeyValue),
  ...processOptions,
  workdir: text("-w, --workdir <dir>", "working directory; made where it is missing"),
  hostname: text("--hostname <name>", "host name inside"),
  ttl: value(
    "--ttl <duration>",
    "idle time after which it ends: 5m, 1h30m, 90; 0 for never; 30m unless given",
    parseSeconds,
  ),
  maxLifetime: value(
    "--max-lifetime <duration>",
    "time after which it ends whatever it does; 0 for never; 24h unless given",
    parseSeconds,
  ),
  memory: value("-m, --memory <size>", "memory limit: 512m, 2g; 1g unless given", parseMebibytes),
  cpus: value(
    "--cpus <cores>",
    "cores asked for: a share of the machine, no ceiling; 1 unless given",
    parseNumber,
  ),
  cpuLimit: value("--cpu-limit <cores>", "hard ceiling in cores", parseNumber),
  pids: value("--pids <count>", "processes it may have; 1024 unless given", parseCount),
  disk: value("--disk <size>", "what it may write: 2g; 4g unless given", parseMebibytes),
  class: choice<ResourceClass>(
    "--class <class>",
    "latency-sensitive|best-effort; latency-sensitive unless given",
    ["latency-sensitive", "best-effort"],
  ),
  pull: choice<PullPolicy>(
    "--pull <policy>",
    "missing|always|never: when the image is looked for in its registry; missing unless given",
    ["missing", "always", "never"],
  ),
  entrypoint: flag(
    "--entrypoint",
    "start the image's own entrypoint as a service beside it, with its output recorded",
  ),
  backend: backendOption,
  engine: choice<Engine>("--engine <engine>", "runc|docker; unless given, the one that has the image", [
    "runc",
    "docker",
  ]),
  allow: many(
    "--allow <rule>",
    "what can be reached: pypi, *.example.com:443, 10.0.0.0/8; may be repeated",
    (given) => given,
  ),
  deny: many("--deny <rule>", "what cannot be reached, whatever else allows it", (given) => given),
  networkPolicy: text(
    "--network-policy <policy>",
    "named policy, name@version, open or none; --allow and --deny add to it",
  ),
};

/** The spec that flags ask for. @throws DSecError `invalid_argument` when they contradict each other or an env file cannot be read */
export async function specOf(
  image: string,
  values: OptionValues<typeof sandboxOptions>,
  io: Io,
): Promise<SandboxSpecInput> {
  return {
    image,
    toolkits: [...values.toolkits],
    labels: Object.fromEntries(values.labels),
    env: await environmentOf(values, io),
    networkRules: networkRules(values.allow, values.deny),
    ...defined({
      workspace: values.workspace,
      name: values.name,
      hostname: values.hostname,
      backend: values.backend,
      engine: values.engine,
      pull: values.pull,
      entrypoint: values.entrypoint ? true : undefined,
      initUser: values.user,
      workdir: values.workdir,
      memoryMb: values.memory,
      cpus: values.cpus,
      cpuLimit: values.cpuLimit,
      pidsLimit: values.pids,
      diskMb: values.disk,
      class: values.class,
      networkPolicy: values.networkPolicy,
      ttlRunningStop: values.ttl,
      maxLifetime: values.maxLifetime,
    }),
  };
}

/** Files first, so that a flag goes before them. */
export async function environmentOf(
  { env, envFile }: Pick<OptionValues<typeof processOptions>, "env" | "envFile">,
  io: Io,
): Promise<Record<string, string>> {
  const settings: (readonly [string, string])[] = [];
  for (const file of envFile) settings.push(...parseEnvFile(await readEnvFile(file), io.env));
  for (const setting of env) {
    const parsed = parseEnvSetting(setting, io.env);
    if (parsed !== undefined) settings.push(parsed);
  }
  return Object.fromEntries(settings);
}

async function readEnvFile(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new DSecError("invalid_argument", `--env-file ${file} cannot be read`, { cause });
  }
}

function networkRules(allow: readonly string[], deny: readonly string[]): Record<string, boolean> {
  const both = allow.find((registry) => deny.includes(registry));
  if (both !== undefined)
    throw new DSecError(
      "invalid_argument",
      `${both} is both allowed and denied: give one of --allow and --deny`,
    );
  return Object.fromEntries([
    ...allow.map((registry) => [registry, true] as const),
    ...deny.map((registry) => [registry, false] as const),
  ]);
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Without the fields that are undefined: on the wire a field is there or not. */
export function defined<T extends object>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, field]) => field !== undefined)) as Defined<T>;
}
