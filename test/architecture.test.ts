import { readdirSync, readFileSync } from "node:fs";
import { basename, extname, join } from "node:path/posix";
import { describe, expect, test } from "vitest";
import { type ModuleImport, parseModule } from "./setup/module-imports.ts";

/**
 * One row per folder: what of ours it may import. A folder always may import itself; the longest matching folder
 * is the one a file belongs to, so src/wire/server/ has its own row. `lazily`: also these, but only by import().
 * `packages`: nothing from npm or Node but these. `never`: none of these, unless by import().
 */
interface Row {
  folder: string;
  imports: string[];
  lazily?: string[];
  packages?: string[];
  never?: string[];
  because: string;
}

/** Packages that cost a command tens of milliseconds, or that only a server needs. */
const HEAVY = [
  "@fastify/swagger",
  "dockerode",
  "fastify",
  "fastify-type-provider-zod",
  "ink",
  "koffi",
  "kysely",
  "node:sqlite",
  "pg",
  "pino",
  "prom-client",
  "react",
  "ssh2",
];

const ROWS: Row[] = [
  {
    folder: "bin/",
    imports: ["src/commands/", "src/sdk/"],
    never: HEAVY,
    because: "the entry parses, runs and sets the exit code; it knows nothing of what runs",
  },
  {
    folder: "src/protocol/",
    imports: [],
    packages: ["zod", "ipaddr.js"],
    because: "it is the contract between programs that run on different machines and in different versions",
  },
  {
    folder: "src/wire/",
    imports: ["src/protocol/"],
    never: HEAVY,
    because: "it carries the protocol, for the SDK too, and knows neither of the two ends",
  },
  {
    folder: "src/wire/server/",
    imports: ["src/protocol/", "src/wire/"],
    because: "coordinator and daemon listen in the same way, and the SDK must not pay for a server",
  },
  {
    folder: "src/sdk/",
    imports: ["src/protocol/", "src/wire/"],
    never: HEAVY,
    because: "it is a library in other people's programs, which talk to a coordinator and contain none",
  },
  {
    folder: "src/commands/",
    imports: ["src/sdk/", "src/protocol/"],
    lazily: ["src/daemon/", "src/scheduler/", "src/scheduler/coordinator/", "src/tui/", "src/backends/"],
    never: HEAVY,
    because: "whatever the CLI does a program can do by the SDK, and `dsec ls` must not load a daemon",
  },
  {
    folder: "src/tui/",
    imports: ["src/sdk/", "src/protocol/"],
    because: "it shows what the SDK tells, like any other client",
  },
  {
    folder: "src/scheduler/",
    imports: ["src/protocol/"],
    packages: ["node:assert", "node:util"],
    because: "placement is a pure function of snapshot, requests, time and seed, so it can be replayed",
  },
  {
    folder: "src/scheduler/coordinator/",
    imports: ["src/scheduler/", "src/protocol/", "src/wire/", "src/wire/server/"],
    because: "it meets daemons by the wire's requests only, also where it hands them over in one process",
  },
  {
    folder: "src/daemon/",
    imports: ["src/protocol/", "src/backends/", "src/agent/", "src/wire/", "src/wire/server/"],
    because: "a node keeps its promises when no coordinator can be reached, so it contains nothing of one",
  },
  {
    folder: "src/backends/",
    imports: ["src/protocol/", "src/agent/"],
    because: "a backend gets a prepared root, network and limits; it must not ask a daemon for more",
  },
  {
    folder: "src/agent/",
    imports: ["src/protocol/"],
    because: "the host's end of the agent's channel works the same under every backend",
  },
];

const SOURCES = ["bin", "src", "test", "scripts"]
  .flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)),
  )
  .filter((path) => [".ts", ".tsx", ".mjs", ".c", ".h"].includes(extname(path)))
  .toSorted();

const MODULES = SOURCES.filter((path) => [".ts", ".tsx", ".mjs"].includes(extname(path))).map((path) => ({
  path,
  ...parseModule(path, readFileSync(path, "utf8")),
}));

const PRODUCT = MODULES.filter(({ path }) => path.startsWith("src/") || path.startsWith("bin/"));

function rowOf(path: string): Row | undefined {
  return ROWS.filter(({ folder }) => path.startsWith(folder)).toSorted(
    (a, b) => b.folder.length - a.folder.length,
  )[0];
}

function allows(row: Row, { kind, target, lazy }: ModuleImport): boolean {
  if (kind === "package") {
    return (row.packages?.includes(target) ?? true) && (lazy || !row.never?.includes(target));
  }
  const folder = rowOf(target)?.folder;
  if (folder === undefined) return false;
  return (
    folder === row.folder || row.imports.includes(folder) || (lazy && (row.lazily ?? []).includes(folder))
  );
}

describe("who may import whom", () => {
  test.each(ROWS)("$folder, because $because", (row) => {
    const offences = PRODUCT.filter(({ path }) => rowOf(path) === row).flatMap(({ path, imports }) =>
      imports.filter((found) => !allows(row, found)).map(({ target }) => `${path} imports ${target}`),
    );
    expect(offences).toEqual([]);
  });

  test("every source file belongs to a row", () => {
    expect(PRODUCT.map(({ path }) => path).filter((path) => rowOf(path) === undefined)).toEqual([]);
  });

  test("a forbidden import is found, static or not", () => {
    const source =
      'import type { Daemon } from "../daemon/daemon.ts";\nawait import("../wire/server/server.ts");';
    const { imports } = parseModule("src/sdk/client.ts", source);
    const row = rowOf("src/sdk/client.ts");
    expect(imports.map((found) => row && allows(row, found))).toEqual([false, false]);
    expect(imports.map(({ target }) => target)).toEqual([
      "src/daemon/daemon.ts",
      "src/wire/server/server.ts",
    ]);
  });
});

describe("how files look", () => {
  test("nothing but bin/ and the main file of a child or a thread ends it: whoever else did would cut off output and disposal", () => {
    const offenders = MODULES.filter(
      ({ path, callsProcessExit }) => callsProcessExit && !/^(bin|test)\/|-(child|worker)\.ts$/.test(path),
    );
    expect(offenders.map(({ path }) => path)).toEqual([]);
  });

  test("no file is longer than 400 lines: it has more than one noun in it", () => {
    const long = SOURCES.filter((path) => readFileSync(path, "utf8").trimEnd().split("\n").length > 400);
    expect(long).toEqual([]);
  });

  test("every file is named after what is in it", () => {
    const vague = /^(utils?|helpers?|common|types?|misc|shared|lib)$/;
    expect(SOURCES.filter((path) => vague.test(basename(path).split(".")[0] ?? ""))).toEqual([]);
  });

  test("exports are written out: `export *` hides what is public", () => {
    expect(MODULES.filter(({ exportsStar }) => exportsStar).map(({ path }) => path)).toEqual([]);
  });
});
