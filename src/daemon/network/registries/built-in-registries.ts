import type { Registries } from "./registry.ts";

const https = [443];
/** Packages of distributions are signed, and often fetched without TLS. */
const either = [80, 443];

/** What names stand for where neither the node nor its operator says otherwise. */
const hosts: Readonly<Record<string, readonly [domains: readonly string[], ports: readonly number[]]>> = {
  alpine: [["dl-cdn.alpinelinux.org"], either],
  conda: [["conda.anaconda.org", "repo.anaconda.com"], https],
  crates: [["crates.io", "index.crates.io", "static.crates.io"], https],
  debian: [["deb.debian.org", "security.debian.org", "ftp.debian.org"], either],
  docker: [
    ["registry-1.docker.io", "auth.docker.io", "index.docker.io", "production.cloudflare.docker.com"],
    https,
  ],
  github: [
    [
      "github.com",
      "api.github.com",
      "codeload.github.com",
      "raw.githubusercontent.com",
      "objects.githubusercontent.com",
      "release-assets.githubusercontent.com",
    ],
    https,
  ],
  go: [["proxy.golang.org", "sum.golang.org"], https],
  huggingface: [["huggingface.co", "*.huggingface.co", "*.hf.co"], https],
  maven: [["repo.maven.apache.org", "repo1.maven.org"], https],
  npm: [["registry.npmjs.org", "registry.yarnpkg.com"], https],
  nuget: [["api.nuget.org"], https],
  packagist: [["packagist.org", "repo.packagist.org"], https],
  pypi: [["pypi.org", "files.pythonhosted.org"], https],
  rubygems: [["rubygems.org", "index.rubygems.org"], https],
  ubuntu: [["archive.ubuntu.com", "*.archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"], either],
};

/** Of the registries whose releases can be cut off by date. */
const upstreams: Readonly<Record<string, string>> = {
  npm: "https://registry.npmjs.org/",
  pypi: "https://pypi.org/simple/",
};

export const builtInRegistries: Registries = new Map(
  Object.entries(hosts).map(([name, [domains, ports]]) => {
    const upstream = upstreams[name];
    return [
      name,
      {
        domains,
        cidrs: [],
        ports,
        source: "built-in",
        ...(upstream !== undefined && { upstream }),
      },
    ];
  }),
);
