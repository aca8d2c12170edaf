import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { chmod, link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { dirname } from "node:path";
import { DSecError } from "../../protocol/errors.ts";

/** Throws `unauthenticated` unless the request carries the token. */
export type Authenticator = (request: Pick<IncomingMessage, "headers">) => void;

const scheme = /^bearer +/i;

/** Compares digests, so that neither content nor length of the token shows in the time it takes. */
export function bearerAuthenticator(token: string): Authenticator {
  const expected = digest(token);
  return (request) => {
    const header = request.headers.authorization;
    if (header === undefined || !scheme.test(header))
      throw new DSecError("unauthenticated", "the request carries no bearer token");
    if (!timingSafeEqual(digest(header.replace(scheme, "")), expected))
      throw new DSecError("unauthenticated", "the bearer token is not this server's");
  };
}

/**
 * The token in `path`; made (256 random bits, mode 0600) where there is none. Two callers at once get the same one.
 * @throws DSecError `config_invalid` when the file holds no usable token, or is none; `permission_denied`
 */
export async function loadOrCreateToken(path: string): Promise<string> {
  const found = await readFile(path, "utf8").catch((error: unknown) => ignoreMissing(error, path));
  if (found !== undefined) return checked(path, found);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomBytes(6).toString("hex")}`;
  try {
    await writeFile(draft, `${randomBytes(32).toString("base64url")}\n`, { mode: 0o600, flag: "wx" });
    await chmod(draft, 0o600);
    await link(draft, path).catch((error: unknown) => {
      if (!isErrno(error, "EEXIST")) throw error;
    });
  } finally {
    await rm(draft, { force: true });
  }
  return checked(path, await readFile(path, "utf8"));
}

function checked(path: string, content: string): string {
  const token = content.trim();
  if (!/^[\x21-\x7e]{16,256}$/.test(token))
    throw new DSecError("config_invalid", `${path} holds no token of 16 to 256 printable characters`);
  return token;
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function ignoreMissing(error: unknown, path: string): undefined {
  if (isErrno(error, "ENOENT")) return undefined;
  const code = isErrno(error, "EACCES") || isErrno(error, "EPERM") ? "permission_denied" : "config_invalid";
  throw new DSecError(code, `the token in ${path} cannot be read`, { cause: error });
}

function isErrno(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
