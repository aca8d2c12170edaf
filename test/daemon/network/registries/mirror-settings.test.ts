import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { aptMirror } from "../../../../src/daemon/network/registries/apt-mirror-setting.ts";
import { builtInRegistries } from "../../../../src/daemon/network/registries/built-in-registries.ts";
import type { NodeConfiguration } from "../../../../src/daemon/network/registries/configured-mirror.ts";
import { npmMirror } from "../../../../src/daemon/network/registries/npm-mirror-setting.ts";
import { pipMirror } from "../../../../src/daemon/network/registries/pip-mirror-setting.ts";
import type { Registry } from "../../../../src/daemon/network/registries/registry.ts";
import { temporaryDir } from "../../daemon-fixture.ts";

async function nodeWith(
  files: Readonly<Record<string, string>>,
  environment: Readonly<Record<string, string>> = {},
): Promise<NodeConfiguration> {
  const root = await temporaryDir();
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), content);
  }
  return { environment, home: "/root", root };
}

const builtIn = (name: string): Registry => builtInRegistries.get(name) ?? expect.unreachable(name);

describe("npm's mirror", () => {
  const find = async (files: Record<string, string>, environment?: Record<string, string>) =>
    npmMirror(await nodeWith(files, environment), builtIn("npm"));

  test("is what the user's npmrc says, before the global one", async () => {
    const files = {
      "/usr/etc/npmrc": "registry=https://old.example/\n",
      "/root/.npmrc": '; mine\nregistry = "https://npm.example:8443/api/npm?x=1"\n',
    };
    expect(await find(files)).toEqual({
      domains: ["npm.example"],
      cidrs: [],
      ports: [8443],
      source: "node",
      upstream: "https://npm.example:8443/api/npm/",
    });
  });

  test("is what the environment says, before all files; in files variables stand for their values", async () => {
    const files = { "/root/.npmrc": "registry=https://${MIRROR}/\n" };
    expect((await find(files, { MIRROR: "a.example" }))?.domains).toEqual(["a.example"]);
    expect(
      (await find(files, { MIRROR: "a.example", npm_config_registry: "http://192.0.2.7:4873" }))?.cidrs,
    ).toEqual(["192.0.2.7/32"]);
  });

  test("of a scope is allowed beside the registry itself, public or not", async () => {
    const found = await find({ "/root/.npmrc": "@lab:registry=https://lab.example/npm/\n" });
    expect(found).toMatchObject({
      domains: ["registry.npmjs.org", "lab.example"],
      upstream: "https://registry.npmjs.org/",
    });
  });

  test("is none where npm asks the public registry, or a file says nothing that can be used", async () => {
    expect(await find({ "/root/.npmrc": "registry=https://registry.npmjs.org/\n" })).toBeUndefined();
    expect(await find({ "/root/.npmrc": "registry=not a url\nfund=false\n" })).toBeUndefined();
    expect(await find({})).toBeUndefined();
  });
});

describe("pip's mirror", () => {
  const find = async (files: Record<string, string>, environment?: Record<string, string>) =>
    pipMirror(await nodeWith(files, environment), builtIn("pypi"));

  test("is the index of its files and those beside it, and nothing of the public one", async () => {
    const found = await find({
      "/etc/pip.conf": "[global]\nindex-url = https://old.example/simple\n",
      "/root/.config/pip/pip.conf":
        "[global]\n# mine\nindex_url: https://py.example/simple\nextra-index-url =\n    https://more.example/simple\n    file:///opt/wheels\n[list]\nindex-url = https://no.example/\n",
    });
    expect(found).toEqual({
      domains: ["py.example", "more.example"],
      cidrs: [],
      ports: [443],
      source: "node",
      upstream: "https://py.example/simple/",
    });
  });

  test("is what the environment says, before all files", async () => {
    const files = { "/etc/pip.conf": "[global]\nindex-url = https://old.example/simple\n" };
    expect(await find(files, { PIP_INDEX_URL: "http://[2001:db8::7]:3141/root/pypi" })).toMatchObject({
      domains: [],
      cidrs: ["2001:db8::7/128"],
      ports: [3141],
    });
    expect(await find(files, { PIP_CONFIG_FILE: "/dev/null" })).toBeUndefined();
  });

  test("is none where only directories of the node are named", async () => {
    expect(
      await find({ "/etc/pip.conf": "[global]\nextra-index-url = file:///opt/a file:///opt/b\n" }),
    ).toBeUndefined();
  });
});

describe("apt's mirror", () => {
  const debian = { "/etc/os-release": "ID=debian\nVERSION_CODENAME=bookworm\n" };
  const find = async (files: Record<string, string>) => aptMirror(await nodeWith(files), builtInRegistries);

  test("is where the distribution's own releases come from, in both formats, not other repositories", async () => {
    const found = await find({
      ...debian,
      "/etc/apt/sources.list":
        "# deb http://no.example/debian bookworm main\ndeb [signed-by=/k.gpg] http://apt.example:8080/debian bookworm main\ndeb https://vendor.example/apt nodistro main\n",
      "/etc/apt/sources.list.d/debian.sources":
        "Types: deb\nURIs: https://apt.example/security\n  https://second.example/security\nSuites: bookworm-security\nComponents: main\n\n# off\nEnabled: no\nTypes: deb\nURIs: https://off.example/\nSuites: bookworm\n",
    });
    expect(found).toEqual([
      "debian",
      { domains: ["apt.example", "second.example"], cidrs: [], ports: [8080, 443], source: "node" },
    ]);
  });

  test("is none where the distribution's own servers are named, or there is no apt", async () => {
    const own = "deb http://deb.debian.org/debian bookworm main\n";
    expect(await find({ ...debian, "/etc/apt/sources.list": own })).toBeUndefined();
    expect(await find({ "/etc/os-release": "ID=fedora\n" })).toBeUndefined();
    expect(await find({})).toBeUndefined();
  });
});
