import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { builtInRegistries } from "../../../../src/daemon/network/registries/built-in-registries.ts";
import { readRegistryFile } from "../../../../src/daemon/network/registries/registry-file.ts";
import { temporaryDir } from "../../daemon-fixture.ts";

async function read(content: string) {
  const path = join(await temporaryDir(), "registries.yaml");
  await writeFile(path, content);
  const table = await readRegistryFile(path, builtInRegistries);
  return (name: string) => table?.get(name);
}

/** Small in writing only. */
const bomb = `a: &a0 [x]\n${Array.from({ length: 9 }, (_, level) => `l${level}: &a${level + 1} [${Array<string>(9).fill(`*a${level}`).join(", ")}]\n`).join("")}`;

describe("an operator's file of registries", () => {
  test("adds names, and replaces what it says of those that are known", async () => {
    const found = await read(
      "corp: {domains: [Pkgs.Example.org, '*.cdn.example.org'], cidrs: [10.1.0.0/16], ports: [8443]}\n" +
        "npm: {domains: [npm.example.org], upstream: 'https://npm.example.org/api/npm'}\n" +
        "pypi: {cutoff: 2026-03-01}\n" +
        "go: {ports: [443, 8080]}\n",
    );
    expect(found("corp")).toEqual({
      domains: ["pkgs.example.org", "*.cdn.example.org"],
      cidrs: ["10.1.0.0/16"],
      ports: [8443],
      source: "file",
    });
    expect(found("npm")).toEqual({
      domains: ["npm.example.org"],
      cidrs: [],
      ports: [443],
      source: "file",
      upstream: "https://npm.example.org/api/npm/",
    });
    expect(found("pypi")).toEqual({
      ...builtInRegistries.get("pypi"),
      source: "file",
      cutoff: Date.UTC(2026, 2, 1),
    });
    expect(found("go")).toMatchObject({
      domains: ["proxy.golang.org", "sum.golang.org"],
      ports: [443, 8080],
    });
    expect(found("github")).toEqual(builtInRegistries.get("github"));
  });

  test("may be JSON, be empty or hold nothing but comments", async () => {
    expect((await read('{"corp": {"domains": ["a.example"]}}'))("corp")?.domains).toEqual(["a.example"]);
    expect((await read(""))("npm")).toEqual(builtInRegistries.get("npm"));
    expect((await read("# none yet\n"))("npm")).toEqual(builtInRegistries.get("npm"));
  });

  test.each([
    ["npm: [", "registries.yaml:1:7: Flow sequence in block collection must be sufficiently indented"],
    ["- npm", "registries.yaml:1:1: Invalid input: expected record, received array"],
    ["npm:\n  domain: [a.example]", 'registries.yaml:2:3: npm: Unrecognized key: "domain"'],
    [
      "npm:\n  domains:\n    - a.example\n    - 'a b'",
      "registries.yaml:4:7: npm.domains.1: 'a b' is no domain",
    ],
    ["npm:\n  domains: ['*']", "registries.yaml:2:13: npm.domains.0: '*' is no domain"],
    [
      "corp:\n  cidrs: [10.0.0.1/8]",
      "registries.yaml:2:11: corp.cidrs.0: '10.0.0.1/8' has bits set beyond its /8",
    ],
    ["corp:\n  domains: [a.example]\n  ports: [0]", "registries.yaml:3:11: corp.ports.0: Too small"],
    ["corp: {}", "registries.yaml:1:7: corp: needs domains or cidrs"],
    ["npm:\n  cutoff: yesterday", "registries.yaml:2:11: npm.cutoff: must be a date like 2026-03-01"],
    [
      "npm:\n  upstream: ftp://a.example/",
      "registries.yaml:2:13: npm.upstream: must be an http or https URL",
    ],
    [
      "go:\n  cutoff: 2026-03-01",
      "registries.yaml:2:11: go.cutoff: only npm and pypi say when a release was published",
    ],
    ["NPM: {domains: [a.example]}", "registries.yaml:1:6: NPM: "],
  ])("%j is refused by file, line and key", async (content, message) => {
    await expect(read(content)).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining(message) as string,
    });
  });

  test("that is small in writing only is refused", async () => {
    await expect(read(bomb)).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining("registries.yaml:1:1: Excessive alias count") as string,
    });
  });

  test("one that is not there says nothing", async () => {
    const path = join(await temporaryDir(), "registries.yaml");
    expect(await readRegistryFile(path, builtInRegistries)).toBeUndefined();
  });
});
