/** A real npm registry for tests, with packages that were published at stated times. */
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const program = fileURLToPath(new URL("../bin/verdaccio", import.meta.resolve("verdaccio")));

export interface TestRelease {
  readonly version: string;
  /** ISO 8601. */
  readonly published: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

export interface Verdaccio extends AsyncDisposable {
  /** Base URL, ending in `/`. */
  readonly url: string;
  /** Publishes by the registry's own interface, then dates the releases. */
  publish(name: string, releases: readonly TestRelease[]): Promise<void>;
}

export interface VerdaccioOptions {
  /** Of a network namespace; the test's own without it. */
  readonly netnsPath?: string;
  readonly host?: string;
  /** Any that is free on loopback without it. */
  readonly port?: number;
}

/** Starts one; resolves when it answers. */
export async function startVerdaccio({
  netnsPath,
  host = "127.0.0.1",
  ...options
}: VerdaccioOptions = {}): Promise<Verdaccio> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-verdaccio-"));
  const storage = join(directory, "storage");
  const config = join(directory, "config.yaml");
  const port = options.port ?? (await freePort());
  const url = `http://${host}:${port}/`;
  await writeFile(
    config,
    JSON.stringify({
      storage,
      web: { enable: false },
      auth: { htpasswd: { file: join(directory, "htpasswd") } },
      packages: { "**": { access: "$all", publish: "$all" } },
      log: { type: "stdout", level: "fatal" },
    }),
  );
  const enter = netnsPath === undefined ? [] : ["nsenter", `--net=${netnsPath}`];
  const [first, ...argv] = [...enter, process.execPath, program, "--config", config];
  const child = spawn(first, [...argv, "--listen", `${host}:${port}`], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const ended = once(child, "exit");
  await answers(`${url}-/ping`, ended);
  return {
    url,
    publish: async (name, releases) => {
      for (const release of releases) await publish(url, directory, name, release);
      await date(join(storage, name, "package.json"), releases);
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function publish(
  url: string,
  directory: string,
  name: string,
  { version, dependencies }: TestRelease,
): Promise<void> {
  const manifest = { name, version, main: "index.js", ...(dependencies !== undefined && { dependencies }) };
  const folder = join(directory, "pack", name, version);
  await mkdir(join(folder, "package"), { recursive: true });
  await writeFile(join(folder, "package/package.json"), JSON.stringify(manifest));
  await writeFile(join(folder, "package/index.js"), `module.exports = "${version}";\n`);
  const file = `${name.split("/").at(-1) ?? name}-${version}.tgz`;
  await run("tar", ["-czf", join(folder, file), "-C", folder, "package"]);
  const tarball = await readFile(join(folder, file));
  const dist = {
    tarball: `${url}${name}/-/${file}`,
    shasum: createHash("sha1").update(tarball).digest("hex"),
    integrity: `sha512-${createHash("sha512").update(tarball).digest("base64")}`,
  };
  const answer = await fetch(`${url}${name.replace("/", "%2f")}`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      _id: name,
      name,
      "dist-tags": { latest: version },
      versions: { [version]: { ...manifest, dist } },
      _attachments: {
        [`${name}-${version}.tgz`]: {
          content_type: "application/octet-stream",
          data: tarball.toString("base64"),
          length: tarball.length,
        },
      },
    }),
  });
  if (!answer.ok) throw new Error(`verdaccio refused ${name} ${version}: ${await answer.text()}`);
}

async function date(path: string, releases: readonly TestRelease[]): Promise<void> {
  const document = JSON.parse(await readFile(path, "utf8")) as { time: Record<string, string> };
  for (const { version, published } of releases) document.time[version] = published;
  await writeFile(path, JSON.stringify(document));
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}

async function answers(url: string, ended: Promise<unknown>): Promise<void> {
  const gone = ended.then(() => {
    throw new Error("verdaccio ended before it answered");
  });
  for (;;) {
    const [ok] = await Promise.race([
      Promise.all([
        fetch(url).then(
          (answer) => answer.ok,
          () => false,
        ),
        new Promise((resolve) => setTimeout(resolve, 100)),
      ]),
      gone,
    ]);
    if (ok) return;
  }
}
