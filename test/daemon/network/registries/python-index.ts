/** A small Python index for tests: PEP 691 with upload times, and wheels that pip installs. */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { zipOf } from "./zip.ts";

export interface PythonRelease {
  readonly version: string;
  /** ISO 8601; an index need not tell. */
  readonly uploaded?: string;
  readonly requiresPython?: string;
}

export interface PythonIndex extends AsyncDisposable {
  /** Ending in `/`; the index is at `simple/` below it. */
  readonly url: string;
  publish(name: string, releases: readonly PythonRelease[]): void;
  wheel(name: string, version: string): Buffer;
  /** From now on files are elsewhere. */
  redirectFiles(to: string): void;
}

/** Starts one on `host`. */
export async function startPythonIndex(host = "127.0.0.1"): Promise<PythonIndex> {
  const projects = new Map<string, readonly (PythonRelease & { readonly file: string })[]>();
  const wheels = new Map<string, Buffer>();
  let redirect: string | undefined;
  const server = createServer((request, response) => {
    const path = request.url ?? "/";
    const project = /^\/simple\/([^/]+)\/$/.exec(path)?.[1];
    const releases = project === undefined ? undefined : projects.get(project);
    const file = path.split("/").at(-1) ?? "";
    const wheel = wheels.get(file);
    if (releases !== undefined) {
      response.writeHead(200, { "content-type": "application/vnd.pypi.simple.v1+json" });
      response.end(
        JSON.stringify({ meta: { "api-version": "1.1" }, name: project, files: releases.map(fileOf) }),
      );
    } else if (wheel !== undefined && redirect !== undefined) {
      response.writeHead(302, { location: `${redirect}${file}` }).end();
    } else if (wheel === undefined) {
      response.writeHead(404).end();
    } else {
      response.writeHead(200, { "content-type": "application/octet-stream" });
      response.end(wheel);
    }
  });
  const fileOf = ({ file, uploaded, requiresPython }: PythonRelease & { readonly file: string }) => ({
    filename: file,
    // Relative to the page, as PyPI's are not, and others' are.
    url: `../../files/${file}`,
    hashes: {
      sha256: createHash("sha256")
        .update(wheels.get(file) ?? "")
        .digest("hex"),
    },
    ...(uploaded !== undefined && { "upload-time": uploaded }),
    ...(requiresPython !== undefined && { "requires-python": requiresPython }),
  });
  await new Promise<void>((resolve) => {
    server.listen(0, host, resolve);
  });
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  return {
    url: `http://${host}:${port}/`,
    publish: (name, releases) => {
      const files = releases.map((release) => ({ ...release, file: wheelName(name, release.version) }));
      for (const { file, version } of files) wheels.set(file, wheelOf(name, version));
      projects.set(name.replaceAll(/[-_.]+/g, "-").toLowerCase(), files);
    },
    wheel: (name, version) => wheels.get(wheelName(name, version)) ?? Buffer.alloc(0),
    redirectFiles: (to) => {
      redirect = to;
    },
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => {
        server.close(resolve);
      });
      server.closeAllConnections();
      await closed;
    },
  };
}

function escaped(name: string): string {
  return name.replaceAll(/[-_.]+/g, "_").toLowerCase();
}

function wheelName(name: string, version: string): string {
  return `${escaped(name)}-${version}-py3-none-any.whl`;
}

function wheelOf(name: string, version: string): Buffer {
  const info = `${escaped(name)}-${version}.dist-info`;
  const files: Record<string, string> = {
    [`${escaped(name)}.py`]: `version = "${version}"\n`,
    [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`,
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
  };
  const record = [...Object.keys(files), `${info}/RECORD`].map((file) => `${file},,\n`).join("");
  return zipOf({ ...files, [`${info}/RECORD`]: record });
}
