import { DatedDocuments } from "./dated-documents.ts";
import type { FileCache } from "./file-cache.ts";
import { isObject, objectOf, textOf } from "./json-object.ts";
import {
  type Mirror,
  type MirrorAnswer,
  type MirrorDocument,
  mirrorDocument,
  type MirrorParts,
  missing,
} from "./mirror.ts";
import { packumentAt, shortPackument } from "./npm-packument.ts";
import type { Upstream } from "./upstream.ts";

const json = "application/json";
const short = "application/vnd.npm.install-v1+json";
const packageName = /^(?:@[A-Za-z0-9~-][A-Za-z0-9._~-]{0,127}\/)?[A-Za-z0-9~-][A-Za-z0-9._~-]{0,213}$/;

interface Package {
  readonly full: MirrorDocument;
  readonly short: MirrorDocument;
  readonly tarballs: ReadonlyMap<string, string>;
}

/** npm's registry, as far as installing needs it. What it cannot date (search, audits, lists) it does not have. */
export class NpmMirror implements Mirror {
  readonly #upstream: Pick<Upstream, "base" | "nearest">;
  readonly #packages: DatedDocuments<Package>;

  constructor({ cutoff, address, now }: MirrorParts, upstream: Upstream, files: FileCache) {
    this.#upstream = upstream;
    this.#packages = new DatedDocuments({
      upstream,
      files,
      // The short form does not tell when versions were published.
      accept: json,
      now,
      make: (body, name) => {
        const packument = packumentAt(JSON.parse(body), cutoff, (file) => `${address}${name}/-/${file}`);
        if (packument === undefined) return undefined;
        const value = {
          full: mirrorDocument(JSON.stringify(packument.document), json),
          short: mirrorDocument(JSON.stringify(shortPackument(packument)), short),
          tarballs: packument.tarballs,
        };
        return { value, bytes: value.full.body.length + value.short.body.length };
      },
    });
  }

  async answer(path: string, accept: string): Promise<MirrorAnswer> {
    if (path === "-/ping") return { kind: "document", document: mirrorDocument("{}", json) };
    const tagsOf = /^-\/package\/(.+)\/dist-tags$/.exec(path)?.[1];
    if (tagsOf !== undefined) return this.#part(tagsOf, "dist-tags");
    const [, fileOf, file] = /^(.+)\/-\/([^/]+)$/.exec(path) ?? [];
    if (fileOf !== undefined && file !== undefined) return this.#tarball(fileOf, file);
    const [, name = path, version] = /^((?:@[^/]+\/)?[^/@][^/]*)(?:\/([^/]+))?$/.exec(path) ?? [];
    if (version !== undefined) return this.#part(name, "versions", version);
    const found = await this.#find(name);
    if (found === undefined) return missing(`${name} had not been published`);
    return { kind: "document", document: accept.includes(short) ? found.short : found.full };
  }

  close(): void {
    this.#packages.close();
  }

  async #tarball(name: string, file: string): Promise<MirrorAnswer> {
    const source = (await this.#find(name))?.tarballs.get(file);
    if (source === undefined) return missing(`${file} of ${name} had not been published`);
    // Many mirrors leave in their documents what the public registry said.
    return this.#packages.file(this.#upstream.nearest(new URL(source)));
  }

  /** One field of the packument, or one version or tag of it. */
  async #part(name: string, field: "versions" | "dist-tags", key?: string): Promise<MirrorAnswer> {
    const found = await this.#find(name);
    if (found === undefined) return missing(`${name} had not been published`);
    const packument = objectOf(JSON.parse(found.full.body.toString("utf8")));
    const part = objectOf(packument[field]);
    if (key === undefined) return { kind: "document", document: mirrorDocument(JSON.stringify(part), json) };
    const manifest = part[textOf(objectOf(packument["dist-tags"])[key]) ?? key];
    if (!isObject(manifest)) return missing(`${name} ${key} had not been published`);
    return { kind: "document", document: mirrorDocument(JSON.stringify(manifest), json) };
  }

  async #find(name: string): Promise<Package | undefined> {
    if (!packageName.test(name)) return undefined;
    return this.#packages.find(name, new URL(name.replace("/", "%2f"), this.#upstream.base));
  }
}
