import { DatedDocuments } from "./dated-documents.ts";
import type { FileCache } from "./file-cache.ts";
import {
  type Mirror,
  type MirrorAnswer,
  type MirrorDocument,
  mirrorDocument,
  type MirrorParts,
  missing,
} from "./mirror.ts";
import { projectAt, projectName, projectPage } from "./pypi-project.ts";
import type { Upstream } from "./upstream.ts";

const simpleJson = "application/vnd.pypi.simple.v1+json";

interface Index {
  readonly json: MirrorDocument;
  readonly page: MirrorDocument;
  readonly files: ReadonlyMap<string, string>;
}

/** A Python index: `simple/PROJECT/` and the files that it names. The list of all projects it does not have: it has no dates. */
export class PypiMirror implements Mirror {
  readonly #base: URL;
  readonly #projects: DatedDocuments<Index>;

  constructor({ cutoff, address, now }: MirrorParts, upstream: Upstream, files: FileCache) {
    this.#base = upstream.base;
    this.#projects = new DatedDocuments({
      upstream,
      files,
      accept: simpleJson,
      now,
      make: (body, name, url) => {
        const project = projectAt(parse(body), cutoff, url.href, (file) => `${address}files/${name}/${file}`);
        if (project === undefined) return undefined;
        const value = {
          json: mirrorDocument(JSON.stringify(project.document), simpleJson),
          page: mirrorDocument(projectPage(project), "text/html; charset=utf-8"),
          files: project.files,
        };
        return { value, bytes: value.json.body.length + value.page.body.length };
      },
    });
  }

  async answer(path: string, accept: string): Promise<MirrorAnswer> {
    const [, fileOf, file] = /^files\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
    if (fileOf !== undefined && file !== undefined) return this.#file(fileOf, file);
    const project = /^simple\/([^/]+)\/?$/.exec(path)?.[1];
    if (project === undefined) return missing("here are simple/PROJECT/ and its files");
    const found = await this.#find(project);
    if (found === undefined) return missing(`nothing of ${project} had been uploaded`);
    return { kind: "document", document: accept.includes(simpleJson) ? found.json : found.page };
  }

  close(): void {
    this.#projects.close();
  }

  async #file(project: string, file: string): Promise<MirrorAnswer> {
    const source = (await this.#find(project))?.files.get(file);
    if (source === undefined) return missing(`${file} of ${project} had not been uploaded`);
    return this.#projects.file(new URL(source));
  }

  async #find(project: string): Promise<Index | undefined> {
    const name = projectName(project);
    if (name === undefined) return undefined;
    return this.#projects.find(name, new URL(`${name}/`, this.#base));
  }
}

/** A page of links is an index without dates. */
function parse(body: string): unknown {
  return body.startsWith("{") ? JSON.parse(body) : { files: [{}] };
}
