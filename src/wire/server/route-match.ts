import { DSecError } from "../../protocol/errors.ts";

const compiled = new Map<string, RegExp>();

/** The parameters of `path` where it is an instance of `pattern` (`/v1/sandboxes/:ref`). @throws DSecError `invalid_argument` on bad escapes */
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  let regex = compiled.get(pattern);
  if (regex === undefined) {
    regex = new RegExp(`^${pattern.replace(/:([a-z]+)/g, "(?<$1>[^/]+)")}$`);
    compiled.set(pattern, regex);
  }
  const groups = regex.exec(path)?.groups;
  if (groups === undefined) return regex.test(path) ? {} : undefined;
  return Object.fromEntries(Object.entries(groups).map(([key, value]) => [key, decode(value)]));
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    throw new DSecError("invalid_argument", "the request path is not a valid URL path", { cause });
  }
}
