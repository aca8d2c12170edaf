import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../../backends/linux/libc.ts";
import { httpUrl, mirrorOf, readConfiguration, type NodeConfiguration } from "./configured-mirror.ts";
import type { Registries, Registry } from "./registry.ts";

const parts = "/etc/apt/sources.list.d";
/** Names of releases that are not those of one distribution's version. */
const rolling = /^(?:stable|oldstable|testing|unstable|sid|devel|rolling)(?:[-/].*)?$/;

/**
 * Where this node's apt gets its distribution's own packages, under the distribution's name; repositories of others are not
 * what the name stands for.
 */
export async function aptMirror(
  node: NodeConfiguration,
  builtIn: Registries,
): Promise<readonly [name: string, mirror: Registry] | undefined> {
  const release = (await readConfiguration(node, "/etc/os-release")) ?? "";
  const field = (name: string) => new RegExp(`^${name}="?([^"\n]*)"?$`, "m").exec(release)?.[1];
  const [name, codename] = [field("ID"), field("VERSION_CODENAME")];
  const known = name === undefined ? undefined : builtIn.get(name);
  if (name === undefined || known === undefined) return undefined;
  const isOwn = (suite: string): boolean =>
    rolling.test(suite) ||
    (codename !== undefined && (suite === codename || /^[-/]/.test(suite.replace(codename, ""))));
  const urls: URL[] = [];
  for (const file of ["/etc/apt/sources.list", ...(await partsOf(node))]) {
    const content = (await readConfiguration(node, file)) ?? "";
    const sources = file.endsWith(".sources") ? parseStanzas(content) : parseLines(content);
    for (const { uris, suites } of sources)
      if (suites.some(isOwn)) urls.push(...uris.flatMap((uri) => httpUrl(uri) ?? []));
  }
  const mirror = urls.length === 0 ? undefined : mirrorOf(urls, undefined, known);
  return mirror === undefined ? undefined : [name, mirror];
}

interface Source {
  readonly uris: readonly string[];
  readonly suites: readonly string[];
}

/** One-line format: `deb [options] URI SUITE COMPONENT…`. */
function parseLines(content: string): Source[] {
  return content.split("\n").flatMap((line) => {
    const [, uri, suite] = /^\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)/.exec(line) ?? [];
    return uri === undefined || suite === undefined ? [] : [{ uris: [uri], suites: [suite] }];
  });
}

/** deb822 format: stanzas of fields, which may go on over indented lines. */
function parseStanzas(content: string): Source[] {
  const stanzas = content.replaceAll(/^#.*\n?/gm, "").split(/\n[ \t]*\n/);
  return stanzas.flatMap((stanza) => {
    const words = (name: string): string[] =>
      (new RegExp(`^${name}:((?:.*)(?:\n[ \t].*)*)`, "im").exec(stanza)?.[1] ?? "")
        .split(/\s+/)
        .filter((word) => word !== "");
    if (words("Enabled")[0] === "no" || !words("Types").includes("deb")) return [];
    return [{ uris: words("URIs"), suites: words("Suites") }];
  });
}

async function partsOf({ root }: NodeConfiguration): Promise<string[]> {
  try {
    const names = await readdir(join(root, parts));
    return names
      .filter((name) => /\.(?:list|sources)$/.test(name))
      .toSorted()
      .map((name) => join(parts, name));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR", "EACCES")) return [];
    throw error;
  }
}
