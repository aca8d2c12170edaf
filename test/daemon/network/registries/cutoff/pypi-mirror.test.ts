import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Mirrors } from "../../../../../src/daemon/network/registries/cutoff/mirrors.ts";
import { makeAuthority } from "../../authorities/authority.ts";
import { type PythonIndex, startPythonIndex } from "../python-index.ts";

const cutoff = Date.parse("2026-03-01T00:00:00Z");
const json = "application/vnd.pypi.simple.v1+json";

let index: PythonIndex;
let mirrors: Mirrors;
let cacheDir: string;
let mirror: string;

async function serve(upstream: string, domains: readonly string[] = [], ca?: string): Promise<string> {
  const plan = {
    name: "pypi",
    upstream,
    domains,
    cutoff,
    host: "127.0.0.1",
    port: 0,
    cacheDir,
    ca,
  };
  return `http://127.0.0.1:${await mirrors.serve(plan)}/`;
}

beforeAll(async () => {
  cacheDir = await mkdtemp(join(tmpdir(), "dsec-mirror-"));
  index = await startPythonIndex();
  index.publish("lab.tool", [
    { version: "1.0", uploaded: "2026-01-01T00:00:00.000000Z" },
    { version: "1.1", uploaded: "2026-02-28T23:59:59.999999Z", requiresPython: ">=3.9,<4" },
    { version: "2.0", uploaded: "2026-03-01T00:00:00.001000Z" },
    { version: "3.0" },
  ]);
  mirrors = new Mirrors((error) => {
    throw error;
  });
  mirror = await serve(`${index.url}simple/`);
});

afterAll(async () => {
  await mirrors.close();
  await index[Symbol.asyncDispose]();
  await rm(cacheDir, { recursive: true, force: true });
});

interface ProjectDocument {
  readonly files: readonly { readonly filename: string; readonly url: string }[];
}

async function project(): Promise<ProjectDocument> {
  return (await (
    await fetch(`${mirror}simple/lab-tool/`, { headers: { accept: json } })
  ).json()) as ProjectDocument;
}

describe("PyPI with a cut-off", () => {
  test("files that were uploaded later, and those without a date, are not there", async () => {
    const { files } = await project();
    expect(files.map(({ filename }) => filename)).toEqual([
      "lab_tool-1.0-py3-none-any.whl",
      "lab_tool-1.1-py3-none-any.whl",
    ]);
    expect(files.map(({ url }) => url.startsWith(`${mirror}files/lab-tool/`))).toEqual([true, true]);
  });

  test("a file is had from the mirror, byte by byte, and one that is hidden is not", async () => {
    const [first] = (await project()).files;
    const content = Buffer.from(await (await fetch(first?.url ?? "")).arrayBuffer());
    expect(content.equals(index.wheel("lab.tool", "1.0"))).toBe(true);
    const hidden = await fetch(`${mirror}files/lab-tool/lab_tool-2.0-py3-none-any.whl`);
    expect(hidden.status).toBe(404);
  });

  test("older clients get a page of the same links", async () => {
    const page = await (
      await fetch(`${mirror}simple/Lab_Tool/`, { headers: { accept: "text/html" } })
    ).text();
    const links = [
      ...page.matchAll(/<a href="([^"#]*)#sha256=[0-9a-f]{64}"( data-requires-python="[^"]*")?/g),
    ];
    expect(links.map(([, href, requires]) => [href?.split("/").at(-1), requires ?? ""])).toEqual([
      ["lab_tool-1.0-py3-none-any.whl", ""],
      ["lab_tool-1.1-py3-none-any.whl", ' data-requires-python="&gt;=3.9,&lt;4"'],
    ]);
    expect(page).not.toContain("2.0");
  });

  test("the list of all projects, other interfaces and names that are none are not there", async () => {
    const paths = ["simple/", "pypi/lab-tool/json", "simple/-x-/", "simple/lab-tool/files", ""];
    const answers = await Promise.all(paths.map(async (path) => fetch(`${mirror}${path}`)));
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404, 404]);
  });

  test("an index is believed when its certificate holds: by a public authority's word, or one of the node's", async () => {
    const authority = await makeAuthority("inspection");
    const document = { meta: { "api-version": "1.1" }, name: "lab-tool", files: [] };
    const secure = createSecureServer(await authority.sign("127.0.0.1"), (_, response) => {
      response.writeHead(200, { "content-type": json });
      response.end(JSON.stringify(document));
    });
    await new Promise<void>((resolve) => {
      secure.listen(0, "127.0.0.1", resolve);
    });
    const address = secure.address();
    const upstream = `https://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}/`;
    const host = upstream.slice("https://".length, -1);
    mirror = await serve(upstream);
    const doubted = await fetch(`${mirror}simple/lab-tool/`);
    expect([doubted.status, await doubted.json()]).toEqual([502, { error: `${host} cannot be reached` }]);
    mirror = await serve(upstream, [], authority.cert);
    const believed = await fetch(`${mirror}simple/lab-tool/`);
    expect([believed.status, await believed.json()]).toEqual([
      404,
      { error: "nothing of lab-tool had been uploaded" },
    ]);
    secure.close();
    secure.closeAllConnections();
  });

  test("an index without dates serves nothing, and says why", async () => {
    const page = createServer((_, response) => {
      response.writeHead(200, { "content-type": "text/html" });
      response.end('<html><a href="lab_tool-1.0-py3-none-any.whl">lab_tool</a></html>');
    });
    await new Promise<void>((resolve) => {
      page.listen(0, "127.0.0.1", resolve);
    });
    const address = page.address();
    const port = typeof address === "object" ? (address?.port ?? 0) : 0;
    mirror = await serve(`http://127.0.0.1:${port}/simple/`);
    const answer = await fetch(`${mirror}simple/lab-tool/`);
    expect([answer.status, await answer.json()]).toEqual([
      502,
      { error: "the index does not tell when files were uploaded (PEP 700)" },
    ]);
    page.close();
    page.closeAllConnections();
  });

  test("a file to which the index leads is fetched from where the name leads, and from nowhere else", async () => {
    index.redirectFiles("http://localhost:1/");
    mirror = await serve(`${index.url}simple/`);
    // Not the one that an earlier test has fetched.
    const file = `${mirror}files/lab-tool/lab_tool-1.1-py3-none-any.whl`;
    const answer = await fetch(file);
    expect([answer.status, await answer.json()]).toEqual([
      403,
      {
        error:
          "the registry leads on to localhost, which its name does not stand for: add it to the registry's domains",
      },
    ]);
    mirror = await serve(`${index.url}simple/`, ["localhost"]);
    const allowed = await fetch(`${mirror}files/lab-tool/lab_tool-1.1-py3-none-any.whl`);
    expect(await allowed.json()).toEqual({ error: "localhost:1 cannot be reached" });
  });
});
