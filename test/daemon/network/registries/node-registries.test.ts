import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import {
  NodeRegistries,
  type NodeRegistriesOptions,
} from "../../../../src/daemon/network/registries/node-registries.ts";
import { packageManagerEnvironment } from "../../../../src/daemon/network/registries/package-manager-environment.ts";
import type { NodeStatus } from "../../../../src/protocol/node.ts";
import { policyWith } from "../../../../src/protocol/network-policy.ts";
import { TestDaemon, temporaryDir } from "../../daemon-fixture.ts";
import { startPythonIndex } from "./python-index.ts";

async function open(content: string | undefined, more: Partial<NodeRegistriesOptions> = {}) {
  const dir = more.dataDir ?? (await temporaryDir());
  await mkdir(dir, { recursive: true });
  const file = join(dir, "registries.yaml");
  if (content !== undefined) await writeFile(file, content);
  const registries = await NodeRegistries.open({
    dataDir: dir,
    file,
    fileRequired: false,
    node: { environment: {}, home: "/root", root: join(dir, "none") },
    ca: undefined,
    now: () => Date.now(),
    ...more,
  });
  let closing: Promise<void> | undefined;
  const close = async (): Promise<void> => (closing ??= registries.close());
  onTestFinished(close);
  return { registries, dir, file, close };
}

test("a changed file holds without a restart; one that is broken changes nothing and is a finding", async () => {
  const { registries, file } = await open("corp: {domains: [a.example]}\n");
  let changes = 0;
  registries.onChange(() => (changes += 1));
  const replace = async (content: string): Promise<void> => {
    await writeFile(`${file}.new`, content);
    await rename(`${file}.new`, file);
  };
  await replace("corp: {domains: [b.example]}\n");
  await expect.poll(() => registries.table.get("corp")?.domains, { timeout: 10_000 }).toEqual(["b.example"]);
  await replace("corp: {domains: [b.example], ports: [x]}\n");
  await expect.poll(() => registries.findings.length, { timeout: 10_000 }).toBe(1);
  expect(registries.findings[0]?.message).toContain(`${file}:1:`);
  expect(registries.table.get("corp")?.domains).toEqual(["b.example"]);
  expect(changes).toBeGreaterThan(0);
});

test("a registry with a cut-off is its mirror on the node and nothing else, under the same port after a restart", async () => {
  const index = await startPythonIndex();
  onTestFinished(async () => index[Symbol.asyncDispose]());
  index.publish("tool", [{ version: "1.0", uploaded: "2026-01-01T00:00:00Z" }]);
  const content = `pypi: {upstream: '${index.url}simple', cutoff: 2026-03-01}\n`;
  const first = await open(content);
  expect(first.registries.table.get("pypi")).toEqual({ domains: [], cidrs: [], ports: [] });
  await first.registries.serveCutoffs("127.0.0.1");
  const endpoints = first.registries.table.get("pypi");
  expect(endpoints).toMatchObject({ domains: [], cidrs: ["127.0.0.1"] });
  const [port = 0] = endpoints?.ports ?? [];
  const page = await fetch(`http://127.0.0.1:${port}/simple/tool/`);
  expect(await page.text()).toContain("tool-1.0-py3-none-any.whl");
  await first.close();

  const second = await open(undefined, { dataDir: first.dir });
  await second.registries.serveCutoffs("127.0.0.1");
  expect(second.registries.table.get("pypi")?.ports).toEqual([port]);
  expect(second.registries.view().find(({ name }) => name === "pypi")).toMatchObject({
    cidrs: ["127.0.0.1"],
    source: "file",
    upstream: `${index.url}simple/`,
    cutoff: Date.UTC(2026, 2, 1),
  });
});

test("a mirror that cannot listen leaves its name standing for nothing, and is a finding", async () => {
  const { registries } = await open("npm: {cutoff: 2026-03-01}\n");
  await registries.serveCutoffs("192.0.2.1");
  expect(registries.table.get("npm")).toEqual({ domains: [], cidrs: [], ports: [] });
  expect(registries.findings.map(({ message }) => message)).toEqual([
    "the cut-off of npm cannot be served: nothing can listen on 192.0.2.1:0",
  ]);
});

test("a mirror on the node's own loopback is a finding, and no sandbox is sent there", async () => {
  const environment = {
    npm_config_registry: "http://localhost:4873/",
    PIP_INDEX_URL: "http://127.0.0.1/simple",
  };
  const node = { environment, home: "/root", root: join(await temporaryDir(), "none") };
  const { registries } = await open("pypi: {cutoff: 2026-03-01}\n", { node });
  expect(registries.findings.map(({ message }) => message)).toEqual([
    "npm stands for a mirror on the node's loopback, where no sandbox reaches it",
  ]);
  expect(registries.homes).toEqual([]);
});

test("package managers are sent to mirrors whose name the policy allows, never with the node's password", async () => {
  const { registries } = await open(
    "npm: {domains: [npm.example], upstream: 'http://user:secret@npm.example:4873/'}\n" +
      // Hosts without a URL: nobody can be sent there.
      "pypi: {domains: [py.example]}\n",
  );
  const environment = (rules: Record<string, boolean>) =>
    packageManagerEnvironment(registries.homes, policyWith(undefined, rules));
  expect(environment({ npm: true, pypi: true })).toEqual({
    npm_config_registry: "http://npm.example:4873/",
    YARN_NPM_REGISTRY_SERVER: "http://npm.example:4873",
    YARN_UNSAFE_HTTP_WHITELIST: "npm.example",
  });
  expect(environment({ npm: false, pypi: true })).toEqual({});
  expect(JSON.stringify(registries.view())).not.toContain("secret");
});

test("a daemon tells what its registries stand for, and refuses a file that is broken or missing", async () => {
  const dir = await temporaryDir();
  const file = join(dir, "registries.yaml");
  await writeFile(file, "corp: {domains: [a.example]}\n");
  const node = { environment: {}, home: "/root", root: join(dir, "none") };
  const daemon = await TestDaemon.start({ registries: { file } }, { node });
  const { registries = [] } = await daemon.http.json<NodeStatus>("nodeStatus");
  expect(registries.find(({ name }) => name === "corp")).toEqual({
    name: "corp",
    domains: ["a.example"],
    cidrs: [],
    ports: [443],
    source: "file",
  });
  expect(registries.find(({ name }) => name === "npm")?.source).toBe("built-in");

  await writeFile(file, "corp: {}\n");
  await expect(TestDaemon.start({ registries: { file } }, { node })).rejects.toMatchObject({
    code: "config_invalid",
  });
  const missing = join(dir, "none.yaml");
  await expect(TestDaemon.start({ registries: { file: missing } }, { node })).rejects.toMatchObject({
    code: "config_invalid",
    message: `${missing} is not there`,
  });
});
