import { join } from "node:path";
import { httpUrl, mirrorOf, readConfiguration, type NodeConfiguration } from "./configured-mirror.ts";
import type { Registry } from "./registry.ts";

/** Where a global npmrc lies by the prefixes that npm is installed with. */
const globalFiles = ["/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc"];

/** Where this node's npm gets packages, also those of scopes with a registry of their own. */
export async function npmMirror(node: NodeConfiguration, builtIn: Registry): Promise<Registry | undefined> {
  const { environment, home } = node;
  const variable = (name: string): string | undefined =>
    environment[`npm_config_${name}`] || environment[`NPM_CONFIG_${name.toUpperCase()}`] || undefined;
  const globalFile = variable("globalconfig");
  const files = [
    ...(globalFile === undefined ? globalFiles : [globalFile]),
    variable("userconfig") ?? join(home, ".npmrc"),
  ];
  const settings = new Map<string, string>();
  // The later goes before the earlier.
  for (const file of files)
    for (const [key, value] of parseNpmrc((await readConfiguration(node, file)) ?? "", environment))
      settings.set(key, value);
  const given = variable("registry");
  if (given !== undefined) settings.set("registry", given);
  const registry = httpUrl(settings.get("registry") ?? "");
  const scoped = [...settings].flatMap(([key, value]) => {
    const url = key === "registry" ? undefined : httpUrl(value);
    return url === undefined ? [] : [url];
  });
  if (registry === undefined && scoped.length === 0) return undefined;
  // Without a registry of its own npm still asks the public one.
  const main = registry ?? httpUrl(builtIn.upstream ?? "");
  return mirrorOf([...(main === undefined ? [] : [main]), ...scoped], main, builtIn);
}

/** The settings `registry` and `@scope:registry`. */
function parseNpmrc(
  content: string,
  environment: NodeConfiguration["environment"],
): (readonly [string, string])[] {
  return content.split("\n").flatMap((line) => {
    const [, key, value] = /^\s*((?:@[^\s:=]+:)?registry)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key === undefined || value === undefined) return [];
    const bare = value.replace(/^(["'])(.*)\1$/, "$2");
    const expanded = bare.replaceAll(/\$\{([^}]+)\}/g, (whole, name: string) => environment[name] ?? whole);
    return [[key, expanded] as const];
  });
}
