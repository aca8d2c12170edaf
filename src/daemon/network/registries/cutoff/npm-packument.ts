/** What npm's registry tells of a package, as it was at a point in time. */
import { DSecError } from "../../../../protocol/errors.ts";
import { type JsonObject, objectOf, textOf } from "./json-object.ts";
import { compareVersions, parseVersion, type Version } from "./version-order.ts";

/** Fields of the short form that npm asks for when it installs. */
const shortFields = [
  "name",
  "version",
  "deprecated",
  "dependencies",
  "optionalDependencies",
  "devDependencies",
  "bundleDependencies",
  "bundledDependencies",
  "peerDependencies",
  "peerDependenciesMeta",
  "acceptDependencies",
  "bin",
  "directories",
  "dist",
  "engines",
  "cpu",
  "os",
  "libc",
  "funding",
  "_hasShrinkwrap",
  "hasInstallScript",
] as const;

/** Of the package as a whole they describe its newest release. */
const tellsOfLater = ["readme", "readmeFilename", "description", "keywords", "_attachments", "_rev", "users"];

export interface Packument {
  readonly document: JsonObject;
  /** Where each visible version's tarball is to be had upstream, by the file name it is offered under. */
  readonly tarballs: ReadonlyMap<string, string>;
}

/**
 * Leaves out what was published after `cutoff`, and what says nothing of when; tags then lead to the newest version that
 * they could have led to.
 *
 * @param tarballUrl where the file of that name will be offered
 * @returns undefined where nothing of the package had been published
 * @throws DSecError `protocol_error` where the registry does not tell when versions were published
 */
export function packumentAt(
  upstream: unknown,
  cutoff: number,
  tarballUrl: (file: string) => string,
): Packument | undefined {
  const whole = objectOf(upstream);
  const all = objectOf(whole["versions"]);
  const times = objectOf(whole["time"]);
  if (Object.keys(all).length > 0 && Object.keys(times).length === 0)
    throw new DSecError("protocol_error", "the registry does not tell when versions were published");
  const versions = new Map<string, JsonObject>();
  const time = new Map<string, string>();
  const tarballs = new Map<string, string>();
  let [created, modified] = [Number.POSITIVE_INFINITY, 0];
  for (const [version, value] of Object.entries(all)) {
    const published = textOf(times[version]) ?? "";
    const at = Date.parse(published);
    // Neither is a date that cannot be read.
    if (!(at <= cutoff)) continue;
    const manifest = objectOf(value);
    const dist = objectOf(manifest["dist"]);
    const source = textOf(dist["tarball"]);
    const file = source === undefined ? undefined : fileName(source);
    if (source === undefined || file === undefined) continue;
    tarballs.set(file, source);
    versions.set(version, { ...manifest, dist: { ...dist, tarball: tarballUrl(file) } });
    time.set(version, published);
    [created, modified] = [Math.min(created, at), Math.max(modified, at)];
  }
  if (tarballs.size === 0) return undefined;
  const document = {
    ...Object.fromEntries(Object.entries(whole).filter(([key]) => !tellsOfLater.includes(key))),
    "dist-tags": tagsAt(objectOf(whole["dist-tags"]), versions),
    versions: Object.fromEntries(versions),
    time: {
      created: new Date(created).toISOString(),
      modified: new Date(modified).toISOString(),
      ...Object.fromEntries(time),
    },
  };
  return { document, tarballs };
}

/** The short form of a packument (`application/vnd.npm.install-v1+json`). */
export function shortPackument({ document }: Packument): JsonObject {
  const versions = Object.entries(objectOf(document["versions"])).map(([version, value]) => {
    const manifest = objectOf(value);
    const fields = shortFields.flatMap((field) =>
      manifest[field] === undefined ? [] : [[field, manifest[field]] as const],
    );
    return [version, Object.fromEntries(fields)] as const;
  });
  return {
    name: document["name"],
    modified: objectOf(document["time"])["modified"],
    "dist-tags": document["dist-tags"],
    versions: Object.fromEntries(versions),
  };
}

/** As npm's own `--before`: the newest visible version up to the one that the tag leads to; `latest` always leads somewhere. */
function tagsAt(tags: JsonObject, versions: ReadonlyMap<string, JsonObject>): JsonObject {
  const visible = [...versions.keys()]
    .flatMap((text) => parseVersion(text) ?? [])
    .toSorted(compareVersions)
    .toReversed();
  const result = new Map<string, string>();
  for (const [tag, value] of Object.entries(tags)) {
    const text = textOf(value) ?? "";
    const target = parseVersion(text);
    const chosen = versions.has(text) ? text : target && newestUpTo(target, visible, versions)?.text;
    if (chosen !== undefined) result.set(tag, chosen);
  }
  const latest = result.get("latest") ?? visible.find(isRelease)?.text ?? visible[0]?.text;
  if (latest !== undefined) result.set("latest", latest);
  return Object.fromEntries(result);
}

function newestUpTo(
  target: Version,
  newestFirst: readonly Version[],
  versions: ReadonlyMap<string, JsonObject>,
): Version | undefined {
  const fitting = newestFirst.filter(
    (version) => compareVersions(version, target) <= 0 && (isRelease(version) || !isRelease(target)),
  );
  return fitting.find(({ text }) => versions.get(text)?.["deprecated"] === undefined) ?? fitting[0];
}

function isRelease({ prerelease }: Version): boolean {
  return prerelease.length === 0;
}

/** The last part of a tarball's path; undefined where it is none that could be offered again. */
function fileName(url: string): string | undefined {
  const name = URL.parse(url)?.pathname.split("/").at(-1);
  return name !== undefined && /^[A-Za-z0-9@._~+-]{1,255}$/.test(name) ? name : undefined;
}
