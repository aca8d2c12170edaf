import { join } from "node:path";
import { httpUrl, mirrorOf, readConfiguration, type NodeConfiguration } from "./configured-mirror.ts";
import type { Registry } from "./registry.ts";

const sections: readonly string[] = ["global", "install"];

/** Where this node's pip gets packages: its index and those beside it. */
export async function pipMirror(node: NodeConfiguration, builtIn: Registry): Promise<Registry | undefined> {
  const { environment, home } = node;
  const given = environment["PIP_CONFIG_FILE"];
  const files = [
    "/etc/xdg/pip/pip.conf",
    "/etc/pip.conf",
    join(home, ".pip/pip.conf"),
    join(environment["XDG_CONFIG_HOME"] || join(home, ".config"), "pip/pip.conf"),
    ...(given === undefined ? [] : [given]),
  ];
  const settings = new Map<string, string>();
  // The later goes before the earlier. pip reads nothing at all when it is pointed at the null device.
  if (given !== "/dev/null")
    for (const file of files)
      for (const [key, value] of parsePipConfig((await readConfiguration(node, file)) ?? ""))
        settings.set(key, value);
  const index = httpUrl(environment["PIP_INDEX_URL"] || (settings.get("index-url") ?? ""));
  const extra = environment["PIP_EXTRA_INDEX_URL"] || (settings.get("extra-index-url") ?? "");
  const beside = extra.split(/\s+/).flatMap((text) => httpUrl(text) ?? []);
  if (index === undefined && beside.length === 0) return undefined;
  // Without an index of its own pip still asks the public one.
  const main = index ?? httpUrl(builtIn.upstream ?? "");
  return mirrorOf([...(main === undefined ? [] : [main]), ...beside], main, builtIn);
}

/** The settings of the sections that hold for installing; values may go on over indented lines. */
function parsePipConfig(content: string): Map<string, string> {
  const settings = new Map<string, string>();
  let section = "";
  let key: string | undefined;
  for (const line of content.split("\n")) {
    if (/^\s*[#;]/.test(line)) continue;
    const heading = /^\[([^\]]*)\]\s*$/.exec(line)?.[1];
    const [, name, value] = /^([A-Za-z][\w-]*)\s*[=:]\s*(.*?)\s*$/.exec(line) ?? [];
    if (heading !== undefined) [section, key] = [heading.trim(), undefined];
    else if (!sections.includes(section)) continue;
    else if (name !== undefined && value !== undefined) {
      key = name.toLowerCase().replaceAll("_", "-");
      settings.set(key, value);
    } else if (key !== undefined && /^\s+\S/.test(line))
      settings.set(key, `${settings.get(key) ?? ""} ${line.trim()}`.trim());
  }
  return settings;
}
