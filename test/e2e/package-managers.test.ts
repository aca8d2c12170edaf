/** Real package managers in sandboxes, against real registries in a network of their own, through what policies allow by name. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findProgram } from "../../src/daemon/resources/program.ts";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { Internet } from "../daemon/network/internet.ts";
import { type NetworkedEngine, networkedEngines } from "../daemon/network/networked-engines.ts";
import { startPythonIndex } from "../daemon/network/registries/python-index.ts";
import { startVerdaccio } from "../daemon/network/registries/verdaccio.ts";
import { makeAptRepository } from "./apt-repository.ts";
import { imageOf } from "./docker-image.ts";
import { type Fleet, startFleet } from "./fleet.ts";

const run = promisify(execFile);
const scope = new AsyncDisposableStack();
/** They end after their containers. */
const dockerImages = scope.use(new AsyncDisposableStack());
const npmPort = 4873;
const aptPort = 8080;
const upstream = `http://npm.mirror.test:${npmPort}/`;

let fleet: Fleet;
let client: DSecClient;
let registriesFile: string;
/** Of npm's registry, for the node, which does not know the sandboxes' names. */
let npmAddress: string;
let pythonUrl: string;
/** apt's, of the repository. */
let keyring: Buffer;

interface Pair {
  /** May reach all three registries. */
  readonly allowed: Sandbox;
  /** May reach one, and has npm denied by name. */
  readonly denied: Sandbox;
}
/** By engine. */
const pairs = new Map<string, Pair>();

beforeAll(async () => {
  const directory = await mkdtemp(join(tmpdir(), "dsec-package-managers-"));
  scope.defer(() => rm(directory, { recursive: true, force: true }));
  const internet = scope.use(await Internet.start());
  const apt = join(directory, "apt");
  await mkdir(apt);
  ({ keyring } = await makeAptRepository(apt));
  await serveDirectory(apt, internet.netnsPath, internet.address(2));
  const npm = scope.use(
    await startVerdaccio({ netnsPath: internet.netnsPath, host: internet.address(1), port: npmPort }),
  );
  npmAddress = npm.url;
  await npm.publish("left", [
    { version: "1.0.0", published: "2026-01-10T00:00:00.000Z" },
    { version: "1.1.0", published: "2026-05-10T00:00:00.000Z" },
  ]);
  await npm.publish("right", [
    { version: "0.1.0", published: "2026-01-01T00:00:00.000Z", dependencies: { left: "^1.0.0" } },
  ]);
  const index = scope.use(await startPythonIndex());
  index.publish("tool", [
    { version: "1.0", uploaded: "2026-01-01T00:00:00Z" },
    { version: "2.0", uploaded: "2026-05-01T00:00:00Z" },
  ]);
  pythonUrl = index.url;
  await internet.setZone({ "a.example.test": [3], "npm.mirror.test": [1], "apt.mirror.test": [2] });

  registriesFile = join(directory, "registries.yaml");
  await writeRegistries();
  const { address, port } = internet.nameServer;
  const flags = ["--registries", registriesFile, "--name-server", `${address}:${port}`];
  fleet = scope.use(await startFleet({ flags: [...flags, "--ca-bundle", internet.caFile] }));
  client = await fleet.client();
  scope.defer(() => client.close());
  for (const engine of networkedEngines) pairs.set(engine.engine, await makePair(engine));
});

afterAll(async () => scope.disposeAsync());

describe.each(networkedEngines)("in containers of $engine", ({ engine }) => {
  let allowed: Sandbox;
  let denied: Sandbox;
  beforeAll(() => {
    ({ allowed, denied } = pairOf(engine));
  });

  describe("npm install", () => {
    test("works through an allowed registry, to which the sandbox's npm is led by itself", async () => {
      const install = await allowed.runShell(
        "mkdir -p /root/task && cd /root/task && npm install right 2>&1",
      );
      expect(install).toMatchObject({ exitCode: 0 });
      const { stdout } = await allowed.runShell("node -p 'require(\"left\")'");
      expect(stdout).toBe("1.1.0\n");
    });

    test("fails when the registry is denied, whoever names it, and says that there is no such host", async () => {
      const { exitCode, stdout } = await denied.runShell(
        `mkdir -p /root/task && cd /root/task && npm install --fetch-retries=0 --registry ${upstream} right 2>&1`,
      );
      expect(exitCode).not.toBe(0);
      expect(stdout).toContain("ENOTFOUND");
      expect((await denied.exec(["ls", "/root/task"])).stdout).toBe("");
      expect((await denied.exec(["env"])).stdout).not.toContain("npm_config_registry");
    });
  });

  describe("apt-get install", () => {
    const apt =
      "apt-get -q -o Acquire::Retries=0 -o Dir::Etc::SourceList=/root/sources.list -o Dir::Etc::SourceParts=-";

    test("works from a signed repository of an allowed registry", async () => {
      const { exitCode, stdout } = await allowed.runShell(
        `cd / && ${apt} update 2>&1 && ${apt} install -y dsec-hello 2>&1 && dsec-hello`,
      );
      expect(stdout).toMatch(/\nhello from a package\n$/);
      expect(exitCode).toBe(0);
    });

    test("fails where the distribution's name is not allowed", async () => {
      const { stdout } = await denied.runShell(
        `cd / && ${apt} update 2>&1; ${apt} install -y dsec-hello 2>&1`,
      );
      expect(stdout).toContain("Could not resolve 'apt.mirror.test'");
      expect(stdout).toContain("Unable to locate package dsec-hello");
    });
  });

  describe("TLS by an authority of the node", () => {
    test.each([
      ["curl", ["curl", "-sS", "https://a.example.test/"]],
      [
        "python",
        [
          "python3",
          "-c",
          "from urllib.request import urlopen; print(urlopen('https://a.example.test/').read())",
        ],
      ],
      [
        "node",
        ["node", "-e", "fetch('https://a.example.test/').then(async (r) => console.log(await r.text()))"],
      ],
    ])("is trusted by %s", async (_, argv) => {
      const { exitCode, stdout, stderr } = await allowed.exec(argv);
      expect([exitCode, stderr]).toEqual([0, ""]);
      expect(stdout).toContain('"name":"a.example.test"');
    });
  });

  test("a cut-off gives pip what had been published by then, and no way to the index itself", async () => {
    const { exitCode, stdout } = await denied.runShell(
      "cd / && PYTHONPATH=/opt/python python3 -m pip install --disable-pip-version-check --no-input --target /root/site tool 2>&1 && PYTHONPATH=/root/site python3 -c 'import tool; print(tool.version)'",
    );
    expect(stdout).toMatch(/\n1\.0\n$/);
    expect(exitCode).toBe(0);
    const page = await denied.runShell('curl -sS "${PIP_INDEX_URL}tool/"');
    expect([...page.stdout.matchAll(/>(tool-[^<]*)</g)].map(([, file]) => file)).toEqual([
      "tool-1.0-py3-none-any.whl",
    ]);
    const direct = await denied.runShell(`curl -sS -m 20 ${pythonUrl}simple/tool/ 2>&1`);
    expect(direct.exitCode).toBe(7);
  });
});

test.each(networkedEngines)(
  "a cut-off that is set while containers of $engine run holds for their next command, and leaves no other way",
  async ({ engine }) => {
    const { allowed, denied } = pairOf(engine);
    await writeRegistries({ upstream: npmAddress, cutoff: "2026-03-01" });
    await expect
      .poll(async () => (await allowed.exec(["printenv", "npm_config_registry"])).stdout, { timeout: 20_000 })
      .not.toBe(`${upstream}\n`);
    const view = await allowed.exec(["npm", "view", "left", "version", "dist-tags.latest", "--json"]);
    expect(JSON.parse(view.stdout)).toEqual({ version: "1.0.0", "dist-tags.latest": "1.0.0" });
    // a coordinator knows of it when it next looks at the node
    await expect
      .poll(async () => (await fleet.dsec(["registries"])).stdout)
      .toMatch(/^npm +10\.\d+\.0\.1 +\d+ +file +2026-03-01T00:00:00Z *$/m);
    const direct = await allowed.exec(["curl", "-sS", "-m", "20", `${upstream}left`]);
    expect([direct.exitCode, direct.stderr]).toEqual([
      6,
      "curl: (6) Could not resolve host: npm.mirror.test\n",
    ]);
    const refused = await denied.exec(["curl", "-sS", "-m", "20", await mirrorOf("npm")]);
    expect(refused.exitCode).toBe(7);
  },
);

async function writeRegistries(npm: { upstream: string; cutoff?: string } = { upstream }): Promise<void> {
  const registries = {
    npm: { domains: ["npm.mirror.test"], ports: [npmPort], ...npm },
    debian: { domains: ["apt.mirror.test"], ports: [aptPort] },
    // On the node itself: only its mirror can reach it.
    pypi: { upstream: `${pythonUrl}simple/`, cutoff: "2026-03-01" },
  };
  await writeFile(registriesFile, JSON.stringify(registries));
}

/** Where sandboxes reach the mirror of a registry with a cut-off. */
async function mirrorOf(name: string): Promise<string> {
  const [node] = await client.nodes();
  const registry = node?.status?.registries?.find((found) => found.name === name);
  return `http://${registry?.cidrs[0] ?? ""}:${registry?.ports[0] ?? ""}/left`;
}

function pairOf(engine: string): Pair {
  const pair = pairs.get(engine);
  if (pair === undefined) throw new Error(`no sandboxes of engine ${engine}`);
  return pair;
}

async function makePair({ spec, images }: NetworkedEngine): Promise<Pair> {
  const [first] = pairs.values();
  const isEquipped = images === "docker";
  const image = isEquipped ? await imageOf(first?.allowed ?? expect.unreachable(), dockerImages) : "debian";
  const make = async (networkRules: Record<string, boolean>): Promise<Sandbox> => {
    const sandbox = await client.createSandbox({
      ...spec,
      image,
      memoryMb: 1024,
      diskMb: 2048,
      networkRules,
    });
    if (!isEquipped) await equip(sandbox);
    return sandbox;
  };
  const [allowed, denied] = await Promise.all([
    make({ npm: true, debian: true, pypi: true, "a.example.test": true }),
    make({ npm: false, pypi: true }),
  ]);
  return { allowed, denied };
}

/** Puts what is tested into a sandbox. */
async function equip(sandbox: Sandbox): Promise<void> {
  await installNpm(sandbox);
  await installPip(sandbox);
  await sandbox.files.write("/etc/apt/keyring.gpg", keyring);
  await sandbox.files.write(
    "/root/sources.list",
    `deb [signed-by=/etc/apt/keyring.gpg] http://apt.mirror.test:${aptPort}/ ./\n`,
  );
}

/** The machine's own Node and npm. */
async function installNpm(sandbox: Sandbox): Promise<void> {
  const npm = await realpath(findProgram("npm") ?? expect.unreachable("npm is missing"));
  await sandbox.files.upload(process.execPath, "/usr/local/bin/node");
  await sandbox.files.upload(dirname(dirname(npm)), "/usr/local/lib/npm");
  const script = "chmod 755 /usr/local/bin/node && ln -s ../lib/npm/bin/npm-cli.js /usr/local/bin/npm";
  expect(await sandbox.exec(["sh", "-c", script])).toMatchObject({ exitCode: 0 });
}

/** The machine's own pip. */
async function installPip(sandbox: Sandbox): Promise<void> {
  const { stdout } = await run("python3", ["-c", "import pip, os; print(os.path.dirname(pip.__file__))"]);
  await sandbox.files.mkdir("/opt/python");
  await sandbox.files.upload(stdout.trim(), "/opt/python/pip");
}

async function serveDirectory(directory: string, netnsPath: string, address: string): Promise<void> {
  const program = fileURLToPath(new URL("./static-server.ts", import.meta.url));
  const argv = [`--net=${netnsPath}`, process.execPath, program, directory, address, String(aptPort)];
  const child = spawn("nsenter", argv, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  scope.defer(async () => {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  });
  await once(child, "message");
}
