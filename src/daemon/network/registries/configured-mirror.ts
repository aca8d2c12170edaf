import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { join } from "node:path";
import { isErrno } from "../../../backends/linux/libc.ts";
import type { Registry } from "./registry.ts";

/** Where a node's package managers have their configuration. */
export interface NodeConfiguration {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Of the user that the daemon runs as. */
  readonly home: string;
  /** `/`, or what stands for it. */
  readonly root: string;
}

/** Largest configuration file that is read, bytes. */
const largestFile = 1_048_576;

/** Undefined where the file is not there, cannot be read, or is no configuration by its size. */
export async function readConfiguration(
  { root }: NodeConfiguration,
  path: string,
): Promise<string | undefined> {
  try {
    const content = await readFile(join(root, path), "utf8");
    return content.length > largestFile ? undefined : content;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR", "EACCES", "EISDIR", "ELOOP")) return undefined;
    throw error;
  }
}

/** An http or https URL; undefined for everything else that a configuration may name (`file:`, `cdrom:`…). */
export function httpUrl(text: string): URL | undefined {
  const url = URL.parse(text.trim());
  return url !== null && /^https?:$/.test(url.protocol) && url.hostname !== "" ? url : undefined;
}

/**
 * What a name stands for on a node whose package manager gets its packages at `urls`: these hosts, instead of the public
 * ones. Undefined where all of them are the public ones, or none is there: then nothing is mirrored.
 *
 * @param upstream that of `urls` which the package manager asks first
 */
export function mirrorOf(
  urls: readonly URL[],
  upstream: URL | undefined,
  builtIn: Registry,
): Registry | undefined {
  if (urls.every(({ hostname }) => builtIn.domains.includes(hostname))) return undefined;
  const names = new Set<string>();
  const cidrs = new Set<string>();
  const ports = new Set<number>();
  for (const url of urls) {
    const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
    const family = isIP(host);
    if (family === 0) names.add(host.replace(/\.$/, ""));
    else cidrs.add(`${host}/${family === 4 ? 32 : 128}`);
    ports.add(portOf(url));
  }
  return {
    domains: [...names],
    cidrs: [...cidrs],
    ports: [...ports],
    source: "node",
    ...(upstream !== undefined && { upstream: baseUrl(upstream) }),
  };
}

/** The URL as a directory, without query and fragment. */
export function baseUrl(url: URL): string {
  const base = new URL(url);
  base.search = "";
  base.hash = "";
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base.href;
}

function portOf(url: URL): number {
  if (url.port !== "") return Number(url.port);
  return url.protocol === "https:" ? 443 : 80;
}
