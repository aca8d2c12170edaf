import { basename, posix, resolve } from "node:path";
import { DSecError } from "../protocol/errors.ts";

/** One side of a copy. */
export type CopyOperand =
  | { readonly type: "stream" }
  | { readonly type: "local"; readonly path: string }
  | { readonly type: "remote"; readonly ref: string; readonly path: string };

/** What docker does with what is found at a destination. */
export type Found = "nothing" | "file" | "directory";

/**
 * Reads an operand as docker does: `REF:PATH` is in a sandbox, `-` is a stream; a local path with a colon begins with `/` or `.`.
 * @throws DSecError `invalid_argument`
 */
export function parseOperand(text: string): CopyOperand {
  if (text === "-") return { type: "stream" };
  const colon = text.indexOf(":");
  if (colon <= 0 || text.startsWith("/") || text.startsWith(".")) {
    if (text !== "" && colon !== 0) return { type: "local", path: text };
    throw new DSecError("invalid_argument", `${JSON.stringify(text)} is no path: give PATH, REF:PATH or -`);
  }
  const path = text.slice(colon + 1);
  if (path === "") throw new DSecError("invalid_argument", `${text} names no path in the sandbox`);
  // as docker: from the root
  return { type: "remote", ref: text.slice(0, colon), path: path.startsWith("/") ? path : `/${path}` };
}

/** Whether a source is to be taken for what is in it, and not for itself: it ends with `/.`. */
export function meansContents(path: string): boolean {
  return posix.basename(path) === ".";
}

/** Whether a path can only mean a directory. */
export function meansDirectory(path: string): boolean {
  return path.endsWith("/") || meansContents(path);
}

/**
 * The path that a source is to be copied to.
 * @throws DSecError `file_error` where docker refuses
 */
export function destinationOf(
  source: { readonly path: string; readonly isDirectory: boolean; readonly isLocal: boolean },
  destination: { readonly path: string; readonly found: Found },
): string {
  const { path, found } = destination;
  if (found === "file") {
    if (source.isDirectory) throw refused(path, "ENOTDIR", "a directory cannot be copied to a file");
    if (meansDirectory(path)) throw refused(path, "ENOTDIR", "it is no directory");
    return path;
  }
  if (found === "directory")
    return source.isDirectory && meansContents(source.path) ? path : below(path, nameOf(source));
  if (!source.isDirectory && meansDirectory(path))
    throw refused(path, "ENOENT", "the directory must be there already");
  return path;
}

function nameOf({ path, isLocal }: { readonly path: string; readonly isLocal: boolean }): string {
  return isLocal ? basename(resolve(path)) : posix.basename(posix.resolve("/", path));
}

function below(directory: string, name: string): string {
  if (name === "") return directory;
  return directory.endsWith("/") ? `${directory}${name}` : `${directory}/${name}`;
}

function refused(path: string, errno: string, reason: string): DSecError {
  return new DSecError("file_error", `${path}: ${reason}`, { details: { path, errno } });
}
