import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { describe, expect, test } from "vitest";
import { parseModule } from "../setup/module-imports.ts";

/** What a module loads at once, through all of ours: files and packages, without types and without import(). */
function loadedBy(...entries: readonly string[]): {
  readonly files: Set<string>;
  readonly packages: Set<string>;
} {
  const files = new Set<string>();
  const packages = new Set<string>();
  const waiting = [...entries];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (files.has(path)) continue;
    files.add(path);
    const source = stripTypeScriptTypes(readFileSync(path, "utf8").replace(/^#!.*/, ""));
    for (const { kind, target, lazy } of parseModule(path, source).imports) {
      if (lazy) continue;
      if (kind === "package") packages.add(target);
      else waiting.push(target);
    }
  }
  return { files, packages };
}

const foreign = (packages: ReadonlySet<string>): string[] =>
  [...packages].filter((name) => !name.startsWith("node:"));

describe("the start of a command pays for no more than it needs", () => {
  const help = loadedBy("bin/dsec.ts", "src/commands/main.ts");
  const ls = loadedBy("src/commands/ls.ts", "src/commands/connect-client.ts");

  test("dsec --help loads commander, and no verb", () => {
    expect(foreign(help.packages)).toEqual(["commander"]);
    expect(help.files).not.toContain("src/commands/ls.ts");
    expect(help.files).not.toContain("src/sdk/client.ts");
  });

  test("dsec ls loads no other package: no zod, ws, yaml, fastify, pino or koffi", () => {
    expect(foreign(ls.packages).filter((name) => name !== "commander")).toEqual([]);
  });

  test("neither imports what loads half of Node: it is taken by process.getBuiltinModule", () => {
    const heavy = ["node:http", "node:https", "node:tls", "node:crypto", "node:child_process"];
    expect([...help.packages, ...ls.packages].filter((name) => heavy.includes(name))).toEqual([]);
  });
});

describe("an older Node", () => {
  const olderNode = `data:text/javascript,Object.defineProperty(process,"versions",{value:{node:"22.18.0"}})`;

  test("gets one clear line and exit code 125", () => {
    const { status, stderr } = spawnSync(process.execPath, ["--import", olderNode, "bin/dsec.ts", "ls"], {
      encoding: "utf8",
    });
    expect(stderr).toMatch(/^dsec needs Node 22\.19 or newer, this is v\S+\n$/);
    expect(status).toBe(125);
    expect(readFileSync("package.json", "utf8")).toContain('"node": ">=22.19"');
  });

  test("can load the program far enough to say so: no name is imported that it may lack", () => {
    const imports = readFileSync("bin/dsec.ts", "utf8").match(/^import .*$/gm);
    expect(imports).toEqual(['import module from "node:module";']);
  });
});
