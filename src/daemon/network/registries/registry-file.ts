import { readFile } from "node:fs/promises";
import type { Document } from "yaml";
import { LineCounter, parseDocument } from "yaml";
import { z } from "zod";
import { isErrno } from "../../../backends/linux/libc.ts";
import { formatCidr, parseCidr } from "../../../protocol/cidr.ts";
import { canonicalDomain } from "../../../protocol/domain-name.ts";
import { DSecError } from "../../../protocol/errors.ts";
import { RegistryName } from "../../../protocol/network-policy.ts";
import { baseUrl, httpUrl } from "./configured-mirror.ts";
import type { Registries, Registry } from "./registry.ts";

/** Largest file, bytes. */
const largestFile = 1_048_576;
const mostEntries = 1000;

/** Names whose releases can be cut off: those whose upstream says when a release was published. */
const datable: readonly string[] = ["npm", "pypi"];

const Domain = checked(canonicalDomain);
const Cidr = checked((text) => formatCidr(parseCidr(text)));
const Cutoff = z.union([z.iso.date(), z.iso.datetime({ offset: true })], {
  error: "must be a date like 2026-03-01, or 2026-03-01T12:00:00Z",
});

/** An entry of the file. What it leaves out stays as it was for a name that is known already. */
const Entry = z.strictObject({
  domains: z.array(Domain).max(256).optional(),
  cidrs: z.array(Cidr).max(256).optional(),
  ports: z.array(z.int().min(1).max(65_535)).min(1).max(64).optional(),
  /** Base URL that package managers are sent to. */
  upstream: z
    .string()
    .max(2048)
    .refine((text) => httpUrl(text) !== undefined, "must be an http or https URL")
    .optional(),
  /** The beginning of the day, in UTC, where no time is given. */
  cutoff: Cutoff.optional(),
});
type Entry = z.infer<typeof Entry>;

const RegistryFile = z.record(RegistryName, Entry);

/**
 * Reads an operator's file (YAML or JSON: registry name → entry) over what names stand for without it.
 *
 * @returns undefined where there is no such file
 * @throws DSecError `config_invalid` naming file, line and column
 */
export async function readRegistryFile(path: string, base: Registries): Promise<Registries | undefined> {
  const content = await readContent(path);
  return content === undefined ? undefined : parseRegistries(path, content, base);
}

function parseRegistries(path: string, content: string, base: Registries): Registries {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, prettyErrors: false });
  const fail = (message: string, offset: number): never => {
    const { line, col } = lines.linePos(offset);
    throw new DSecError("config_invalid", `${path}:${line}:${col}: ${message}`, {
      details: { file: path, line, column: col },
    });
  };
  const [broken] = document.errors;
  if (broken !== undefined) return fail(broken.message, broken.pos[0]);
  const table = new Map(base);
  // An empty file, or one of comments.
  if (document.contents === null) return table;
  const parsed = RegistryFile.safeParse(contentOf(document, fail));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const at = issue?.path ?? [];
    const subject = at.length === 0 ? "" : `${at.join(".")}: `;
    return fail(`${subject}${issue?.message ?? "not valid"}`, offsetOf(document, at));
  }
  const entries = Object.entries(parsed.data);
  if (entries.length > mostEntries) return fail(`more than ${mostEntries} registries`, 0);
  for (const [name, entry] of entries) {
    const registry = overlay(base.get(name), entry);
    if (registry.domains.length + registry.cidrs.length === 0)
      return fail(`${name}: needs domains or cidrs`, offsetOf(document, [name]));
    if (entry.cutoff !== undefined && !datable.includes(name))
      return fail(
        `${name}.cutoff: only ${datable.join(" and ")} say when a release was published`,
        offsetOf(document, [name, "cutoff"]),
      );
    table.set(name, registry);
  }
  return table;
}

/** @param fail is told of a document that is small in writing only */
function contentOf(document: Document.Parsed, fail: (message: string, offset: number) => never): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error), 0);
  }
}

/** An entry that names hosts names all of them. */
function overlay(base: Registry | undefined, entry: Entry): Registry {
  const namesHosts = entry.domains !== undefined || entry.cidrs !== undefined;
  const { domains = [], cidrs = [] } = namesHosts ? entry : (base ?? {});
  const upstream = entry.upstream === undefined ? base?.upstream : baseUrl(new URL(entry.upstream));
  return {
    domains,
    cidrs,
    ports: entry.ports ?? base?.ports ?? [443],
    source: "file",
    ...(upstream !== undefined && { upstream }),
    ...(entry.cutoff !== undefined && { cutoff: Date.parse(entry.cutoff) }),
  };
}

/** Where in the file the deepest part of `path` stands that is there. */
function offsetOf(document: Document.Parsed, path: readonly PropertyKey[]): number {
  for (let length = path.length; length > 0; length -= 1) {
    const node: unknown = document.getIn(path.slice(0, length), true);
    const range =
      typeof node === "object" && node !== null && "range" in node && Array.isArray(node.range)
        ? node.range
        : [];
    const [start]: unknown[] = range;
    if (typeof start === "number") return start;
  }
  return 0;
}

function checked(rewrite: (text: string) => string) {
  return z
    .string()
    .max(400)
    .transform((text, context) => {
      try {
        return rewrite(text);
      } catch (error) {
        context.addIssue(error instanceof Error ? error.message : String(error));
        return z.NEVER;
      }
    });
}

async function readContent(path: string): Promise<string | undefined> {
  let content: string;
  try {
    content = await readFile(path, "utf8");
  } catch (cause) {
    if (isErrno(cause, "ENOENT")) return undefined;
    throw new DSecError("config_invalid", `${path} cannot be read`, { cause, details: { file: path } });
  }
  if (content.length > largestFile)
    throw new DSecError("config_invalid", `${path} is longer than ${largestFile} bytes`);
  return content;
}
