import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A certificate and its key, PEM. */
export interface Certified {
  readonly cert: string;
  readonly key: string;
}

export interface Authority extends Certified {
  /** A server's certificate. @param name of the host, or its address */
  sign(name: string): Promise<Certified>;
}

/** Makes a certificate authority of the test's own. */
export async function makeAuthority(name: string): Promise<Authority> {
  return inDirectory(async (directory) => {
    const [cert, key] = [join(directory, "ca.pem"), join(directory, "ca.key")];
    await openssl("req", "-x509", ...newKey(key), "-out", cert, "-days", "2", "-subj", `/CN=${name}`);
    const authority = { cert: await readFile(cert, "utf8"), key: await readFile(key, "utf8") };
    return { ...authority, sign: (host) => sign(authority, host) };
  });
}

function sign(authority: Certified, host: string): Promise<Certified> {
  return inDirectory(async (directory) => {
    const path = (file: string): string => join(directory, file);
    await writeFile(path("ca.pem"), authority.cert);
    await writeFile(path("ca.key"), authority.key);
    const kind = /^[\d.]+$|:/.test(host) ? "IP" : "DNS";
    await writeFile(path("extensions"), `subjectAltName=${kind}:${host}\nbasicConstraints=CA:false\n`);
    await openssl("req", ...newKey(path("key")), "-out", path("csr"), "-subj", `/CN=${host}`);
    const signing = ["-CA", path("ca.pem"), "-CAkey", path("ca.key"), "-CAcreateserial", "-days", "2"];
    const files = ["-in", path("csr"), "-out", path("cert"), "-extfile", path("extensions")];
    await openssl("x509", "-req", ...files, ...signing);
    return { cert: await readFile(path("cert"), "utf8"), key: await readFile(path("key"), "utf8") };
  });
}

function newKey(path: string): string[] {
  return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path];
}

async function openssl(...args: readonly string[]): Promise<void> {
  await run("openssl", args);
}

async function inDirectory<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-authority-"));
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
