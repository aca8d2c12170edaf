import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Mirrors } from "../../../../../src/daemon/network/registries/cutoff/mirrors.ts";
import { startVerdaccio, type Verdaccio } from "../verdaccio.ts";

const run = promisify(execFile);

const directories: string[] = [];
let registry: Verdaccio;
let mirrors: Mirrors;
let mirror: string;

async function directory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "dsec-mirror-"));
  directories.push(path);
  return path;
}

async function serve(upstream: string, cutoff: string): Promise<string> {
  const plan = { name: "npm", upstream, domains: [], cutoff: Date.parse(cutoff), host: "127.0.0.1", port: 0 };
  const port = await mirrors.serve({ ...plan, cacheDir: await directory(), ca: undefined });
  return `http://127.0.0.1:${port}/`;
}

beforeAll(async () => {
  registry = await startVerdaccio();
  await registry.publish("left", [
    { version: "1.0.0", published: "2026-01-10T00:00:00.000Z" },
    { version: "1.1.0", published: "2026-02-10T00:00:00.000Z" },
    { version: "1.2.0", published: "2026-03-10T00:00:00.000Z" },
  ]);
  await registry.publish("@lab/right", [
    {
      version: "0.1.0",
      published: "2026-01-01T00:00:00.000Z",
      dependencies: { left: "^1.0.0" },
    },
  ]);
  await registry.publish("later", [{ version: "1.0.0", published: "2026-05-01T00:00:00.000Z" }]);
  mirrors = new Mirrors((error) => {
    throw error;
  });
  mirror = await serve(registry.url, "2026-03-01T00:00:00.000Z");
});

afterAll(async () => {
  await mirrors.close();
  await registry[Symbol.asyncDispose]();
  for (const path of directories) await rm(path, { recursive: true, force: true });
});

interface Packument {
  readonly "dist-tags": Record<string, string>;
  readonly versions: Record<string, { readonly dist: { readonly tarball: string } }>;
  readonly time: Record<string, string>;
}

async function packument(name: string): Promise<Packument> {
  return (await (await fetch(`${mirror}${name}`)).json()) as Packument;
}

describe("npm with a cut-off", () => {
  test("versions that were published later are not there, and latest is the newest that was", async () => {
    const { versions, time, "dist-tags": tags } = await packument("left");
    expect(Object.keys(versions)).toEqual(["1.0.0", "1.1.0"]);
    expect(tags).toEqual({ latest: "1.1.0" });
    expect(time).toMatchObject({ modified: "2026-02-10T00:00:00.000Z" });
    expect(Object.keys(time)).not.toContain("1.2.0");
  });

  test("the tarball of a later version is not there, although it is upstream", async () => {
    const file = "left/-/left-1.2.0.tgz";
    const upstream = await fetch(`${registry.url}${file}`);
    await upstream.arrayBuffer();
    const hidden = await fetch(`${mirror}${file}`);
    expect([upstream.status, hidden.status]).toEqual([200, 404]);
    expect(await hidden.json()).toEqual({ error: "left-1.2.0.tgz of left had not been published" });
  });

  test("a package of which nothing had been published is not there", async () => {
    const answers = await Promise.all(["later", "later/1.0.0", "later/-/later-1.0.0.tgz"].map(get));
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404]);
  });

  test("one version, a tag and a package's tags are answered from what is visible", async () => {
    const version = async (path: string): Promise<unknown> =>
      ((await (await fetch(`${mirror}${path}`)).json()) as { version: string }).version;
    expect(await Promise.all(["left/1.0.0", "left/latest", "@lab%2fright/0.1.0"].map(version))).toEqual([
      "1.0.0",
      "1.1.0",
      "0.1.0",
    ]);
    expect((await get("left/1.2.0")).status).toBe(404);
    expect(await (await get("-/package/left/dist-tags")).json()).toEqual({ latest: "1.1.0" });
  });

  test("a document is sent once to a client that has it", async () => {
    const first = await get("left");
    await first.arrayBuffer();
    const etag = first.headers.get("etag") ?? "";
    const again = await fetch(`${mirror}left`, { headers: { "if-none-match": etag } });
    expect([etag.length > 20, again.status]).toEqual([true, 304]);
  });

  test("publishing, searching and leaving the registry by the path are refused", async () => {
    const put = await fetch(`${mirror}left`, { method: "PUT", body: "{}" });
    const answers = await Promise.all(["-/v1/search?text=left", "%2e%2e%2f-%2fping", "-/all", ""].map(get));
    expect([put.status, ...answers.map(({ status }) => status)]).toEqual([405, 404, 400, 404, 404]);
  });

  test("npm install gets the newest release before the cut-off, also of a dependency of a scoped package", async () => {
    const project = await directory();
    await writeFile(join(project, "package.json"), JSON.stringify({ name: "task", version: "1.0.0" }));
    await run("npm", ["install", "--no-audit", "--no-fund", "@lab/right"], {
      cwd: project,
      env: {
        PATH: process.env["PATH"],
        HOME: project,
        npm_config_registry: mirror,
        npm_config_cache: join(project, "cache"),
      },
    });
    expect(await readFile(join(project, "node_modules/left/index.js"), "utf8")).toBe(
      'module.exports = "1.1.0";\n',
    );
  });

  test("many who ask at the same time cause one request upstream for a document, and one for a file", async () => {
    const asked: string[] = [];
    const proxy = await countingProxy(registry.url, asked);
    mirror = await serve(proxy.url, "2026-03-01T00:00:00.000Z");
    const paths = Array.from({ length: 40 }, () => "left/-/left-1.0.0.tgz");
    const bodies = await Promise.all(paths.map(async (path) => (await get(path)).arrayBuffer()));
    expect(new Set(bodies.map(({ byteLength }) => byteLength)).size).toBe(1);
    expect(asked.toSorted()).toEqual(["/left", "/left/-/left-1.0.0.tgz"]);
  });

  test("a registry that does not tell when versions were published serves nothing, and says why", async () => {
    const proxy = await countingProxy(registry.url, [], (document) => {
      const { time: _, ...rest } = JSON.parse(document) as Packument;
      return JSON.stringify(rest);
    });
    mirror = await serve(proxy.url, "2026-03-01T00:00:00.000Z");
    const answer = await get("left");
    expect([answer.status, await answer.json()]).toEqual([
      502,
      { error: "the registry does not tell when versions were published" },
    ]);
  });

  test("a registry that cannot be reached is an error of its own, not a package that is not there", async () => {
    mirror = await serve("http://127.0.0.1:1/", "2026-03-01T00:00:00.000Z");
    const answer = await get("left");
    expect([answer.status, await answer.json()]).toEqual([502, { error: "127.0.0.1:1 cannot be reached" }]);
  });
});

async function get(path: string): Promise<Response> {
  return fetch(`${mirror}${path}`);
}

/** Stands before the registry, notes what is asked for, and may change documents. */
async function countingProxy(
  upstream: string,
  asked: string[],
  change = (document: string): string => document,
): Promise<{ readonly url: string }> {
  const { createServer } = await import("node:http");
  const server = createServer((request, response) => {
    const path = request.url ?? "/";
    asked.push(path);
    void fetch(new URL(path, upstream)).then(async (answer) => {
      const isDocument = answer.headers.get("content-type")?.includes("json") ?? false;
      const body = Buffer.from(await answer.arrayBuffer());
      response.writeHead(answer.status);
      response.end(isDocument ? change(body.toString("utf8")) : body);
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  return { url: `http://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}/` };
}
