import { readFile } from "node:fs/promises";
import { runProgram, findProgram } from "../../resources/program.ts";

/** What the machine's own apt uses, for mmdebstrap: so mirrors and proxies work, and no address stands in our code. */
export interface AptConfiguration {
  /** Lines of a sources.list for the suite; empty where the machine's apt has nothing to go by. */
  readonly sources: readonly string[];
  /** apt.conf settings, e.g. `Acquire::http::Proxy "…"`. */
  readonly settings: readonly string[];
}

/** Settings that say how to reach a mirror and what to accept of it. */
const relevantSetting = /^Acquire::(?:https?|Retries|Check-|Allow|Max-|ForceIPv)/;

/**
 * Reads the machine's apt configuration for `suite`. Where the machine runs another suite, the sources of its own are
 * taken with the name replaced.
 */
export async function readAptConfiguration(suite: string, signal?: AbortSignal): Promise<AptConfiguration> {
  const cancel = signal === undefined ? {} : { signal };
  if (findProgram("apt-get") === undefined || findProgram("apt-config") === undefined)
    return { sources: [], settings: [] };
  const targets = await runProgram(
    "apt-get",
    [
      "indextargets",
      "--format",
      "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SOURCESENTRY)",
      "Created-By: Packages",
    ],
    cancel,
  );
  const own = await readOwnRelease();
  const sources: string[] = [];
  for (const line of new Set(targets.split("\n"))) {
    const [uri, release, component, entry] = line.split("|");
    if (!uri || !release || !component || !entry) continue;
    const wanted = own.id === "debian" ? suiteRelease(release, own.codename, suite) : undefined;
    if (wanted !== undefined)
      sources.push(`deb ${await readSourceOptions(entry)}${uri} ${wanted} ${component}`);
  }
  const dump = await runProgram("apt-config", ["dump"], cancel);
  const settings = dump
    .split("\n")
    .filter((line) => relevantSetting.test(line) && !line.endsWith(' "";'))
    .map((line) => line.replace(/;$/, ""));
  return { sources, settings };
}

/** `bookworm-security` of a bookworm machine is `trixie-security` for trixie; undefined for other repositories' releases. */
function suiteRelease(release: string, codename: string | undefined, suite: string): string | undefined {
  for (const name of [suite, ...(codename === undefined ? [] : [codename])]) {
    const rest = release.startsWith(name) ? release.slice(name.length) : undefined;
    if (rest === "" || rest === "-updates" || rest === "-security") return `${suite}${rest}`;
  }
  return undefined;
}

async function readOwnRelease(): Promise<{ id: string | undefined; codename: string | undefined }> {
  const text = await readFile("/etc/os-release", "utf8").catch(() => "");
  const field = (name: string) => new RegExp(`^${name}="?([^"\n]*)"?$`, "m").exec(text)?.[1];
  return { id: field("ID"), codename: field("VERSION_CODENAME") };
}

/** The options of a source that decide whether it is trusted, as `[signed-by=…] `. `entry` is `path:number`, as apt names it. */
async function readSourceOptions(entry: string): Promise<string> {
  const colon = entry.lastIndexOf(":");
  const text = await readFile(entry.slice(0, colon), "utf8").catch(() => "");
  const position = Number(entry.slice(colon + 1)) - 1;
  const options: string[] = [];
  if (entry.slice(0, colon).endsWith(".sources")) {
    // apt counts stanzas; comments do not part them.
    const stanzas = text
      .replaceAll(/^#.*\n?/gm, "")
      .split(/\n\s*\n/)
      .filter((part) => part.trim() !== "");
    const stanza = stanzas[position] ?? stanzas[0] ?? "";
    const signedBy = /^Signed-By:[ \t]*(\/\S+)[ \t]*$/im.exec(stanza)?.[1];
    if (signedBy !== undefined) options.push(`signed-by=${signedBy}`);
    if (/^Trusted:[ \t]*yes[ \t]*$/im.test(stanza)) options.push("trusted=yes");
  } else {
    const line = text.split("\n")[position] ?? "";
    const given = /^deb\s+\[([^\]]*)\]/.exec(line)?.[1] ?? "";
    options.push(...given.split(/\s+/).filter((option) => /^(?:signed-by|trusted)=/.test(option)));
  }
  return options.length === 0 ? "" : `[${options.join(" ")}] `;
}
