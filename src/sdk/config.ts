import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type * as Yaml from "yaml";
import { DSecError } from "../protocol/errors.ts";

/** What a context, and the file's top level for all of them, can set. */
export const connectionKeys = [
  "address",
  "token-file",
  "ca-file",
  "data-dir",
  "run-dir",
  "instance",
] as const;
export type ConnectionKey = (typeof connectionKeys)[number];
export type Connection = Readonly<Partial<Record<ConnectionKey, string>>>;

/** The config file of CLI and SDK: several fleets by name. */
export interface ConfigFile {
  readonly path: string;
  readonly currentContext: string | undefined;
  readonly contexts: Readonly<Record<string, Connection>>;
  /** Of the file's top level: what holds where the context says nothing. */
  readonly common: Connection;
}

/** DSEC_CONFIG, else dsec/config.yaml below XDG_CONFIG_HOME or ~/.config. */
export function configPath(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment["DSEC_CONFIG"];
  if (given !== undefined && given !== "") return given;
  const base = environment["XDG_CONFIG_HOME"] || join(environment["HOME"] ?? homedir(), ".config");
  return join(base, "dsec", "config.yaml");
}

/** A file that does not exist is an empty one. @throws DSecError `config_invalid` naming the file and the place in it */
export async function readConfigFile(path: string): Promise<ConfigFile> {
  const content = await readContent(path);
  if (content === undefined || content.trim() === "")
    return { path, currentContext: undefined, contexts: {}, common: {} };
  const yaml = await import("yaml");
  const lines = new yaml.LineCounter();
  const document = yaml.parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const fail: Fail = (message, offset) => {
    const { line, col } = lines.linePos(offset ?? 0);
    throw new DSecError("config_invalid", `${path}:${line}:${col}: ${message}`, {
      details: { file: path, line, column: col },
    });
  };
  const [broken] = document.errors;
  if (broken !== undefined) fail(broken.message, broken.pos[0]);
  // nothing but comments
  if (document.contents === null) return { path, currentContext: undefined, contexts: {}, common: {} };
  return { path, ...readDocument(document, yaml, fail) };
}

async function readContent(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw new DSecError("config_invalid", `${path} cannot be read`, { cause, details: { file: path } });
  }
}

type Fail = (message: string, offset: number | undefined) => never;

function readDocument(
  document: Yaml.Document.Parsed,
  yaml: typeof Yaml,
  fail: Fail,
): Omit<ConfigFile, "path"> {
  const entries = (node: unknown, what: string, offset: number | undefined): [string, unknown, number][] => {
    if (!yaml.isMap(node)) return fail(`${what} must be a mapping`, offset);
    return node.items.map(({ key, value }) => {
      const at = yaml.isScalar(key) ? key.range?.[0] : undefined;
      if (!yaml.isScalar(key) || typeof key.value !== "string")
        return fail(`${what} must have text as keys`, at);
      return [key.value, value, at ?? 0];
    });
  };
  const string = (key: string, node: unknown, offset: number): string => {
    if (yaml.isScalar(node) && typeof node.value === "string") return node.value;
    return fail(`${key} must be text`, offset);
  };

  const common: Record<string, string> = {};
  const contexts: Record<string, Connection> = {};
  let currentContext: string | undefined;
  let currentAt: number | undefined;
  for (const [key, node, at] of entries(document.contents, "the file", 0)) {
    if (key === "current-context") [currentContext, currentAt] = [string(key, node, at), at];
    else if (isConnectionKey(key)) common[key] = string(key, node, at);
    else if (key !== "contexts") fail(`unknown key ${JSON.stringify(key)}`, at);
    else
      for (const [name, context, contextAt] of entries(node, "contexts", at)) {
        const settings: Record<string, string> = {};
        for (const [setting, valueNode, settingAt] of entries(context, `context ${name}`, contextAt)) {
          if (!isConnectionKey(setting)) fail(`unknown key ${JSON.stringify(setting)}`, settingAt);
          settings[setting] = string(setting, valueNode, settingAt);
        }
        contexts[name] = settings;
      }
  }
  if (currentContext !== undefined && !Object.hasOwn(contexts, currentContext))
    fail(`current-context names no context: ${JSON.stringify(currentContext)}`, currentAt);
  return { currentContext, contexts, common };
}

function isConnectionKey(key: string): key is ConnectionKey {
  return connectionKeys.some((known) => known === key);
}
