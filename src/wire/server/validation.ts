import type { z } from "zod";
import { DSecError } from "../../protocol/errors.ts";

type Part = "params" | "query" | "body";
const places: Readonly<Record<Part, string>> = { params: "path", query: "query", body: "body" };

/**
 * Parses one part of a request.
 * @throws DSecError `invalid_argument` whose message is one sentence naming the field; details.issues holds all of them
 */
export function parsePart<S extends z.ZodType>(part: Part, schema: S, value: unknown): z.output<S> {
  const result = schema.safeParse(part === "body" ? (value ?? {}) : coerceStrings(schema, value));
  if (result.success) return result.data;
  const issues = result.error.issues.flatMap(narrow).flatMap((issue) => describe(issue, part));
  const [first] = issues;
  const rest = issues.length > 1 ? ` (and ${issues.length - 1} more)` : "";
  throw new DSecError("invalid_argument", `${first?.field}: ${first?.message}${rest}`, {
    details: { issues },
  });
}

/** Of alternatives, what is wrong with the one that was meant: the one whose type the value has. */
function narrow(issue: z.core.$ZodIssue): z.core.$ZodIssue[] {
  if (issue.code !== "invalid_union") return [issue];
  const meant = issue.errors.find(
    (branch) => !branch.some(({ code, path }) => code === "invalid_type" && path.length === 0),
  );
  if (meant === undefined) return [issue];
  return meant.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] })).flatMap(narrow);
}

function describe(issue: z.core.$ZodIssue, part: Part): { field: string; message: string }[] {
  const path = issue.path.map(String).join(".");
  if (issue.code === "unrecognized_keys")
    return issue.keys.map((key) => ({
      field: path === "" ? key : `${path}.${key}`,
      message: `unknown ${part === "query" ? "query parameter" : "field"}`,
    }));
  const message = issue.code === "invalid_key" ? (issue.issues[0]?.message ?? issue.message) : issue.message;
  return [{ field: path === "" ? places[part] : path, message: lowerFirst(message) }];
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** Turns the strings of a path or query into what its schema expects; what does not fit is left for the schema to refuse. */
function coerceStrings(schema: z.ZodType, query: unknown): unknown {
  if (typeof query !== "object" || query === null) return {};
  const shape = "shape" in schema.def ? (schema.def.shape as Readonly<Record<string, z.core.$ZodType>>) : {};
  return Object.fromEntries(
    Object.entries(query).map(([key, value]) => {
      const field = Object.hasOwn(shape, key) ? shape[key] : undefined;
      return [key, field === undefined ? value : coerce(innermost(field), value)];
    }),
  );
}

function coerce({ def }: z.core.$ZodTypeInternals, value: unknown): unknown {
  const kind = def.type;
  if (kind === "array") {
    const given: unknown[] = Array.isArray(value) ? value : [value];
    // names of a fixed set may stand in one parameter; other text may have commas of its own
    const isList = "element" in def && innermost(def.element as z.core.$ZodType).def.type === "enum";
    return isList ? given.flatMap((item) => String(item).split(",")) : given;
  }
  if (typeof value !== "string") return value;
  if (kind === "number") return value.trim() === "" || Number.isNaN(Number(value)) ? value : Number(value);
  if (kind === "boolean")
    return value === "true" || value === "1" || (value === "false" || value === "0" ? false : value);
  return value;
}

function innermost({ _zod: schema }: z.core.$ZodType): z.core.$ZodTypeInternals {
  return "innerType" in schema.def ? innermost(schema.def.innerType as z.core.$ZodType) : schema;
}
