import type { Guest, GuestFileInfo, GuestFiles } from "../../../agent/guest.ts";
import { DSecError } from "../../../protocol/errors.ts";

/** The node's authorities alone, inside a sandbox. */
const ownFile = "/etc/ssl/dsec-ca.pem";
/** What programs of all distributions are led to: the image's authorities and the node's. */
const mainBundle = "/etc/ssl/certs/ca-certificates.crt";
/** Where distributions have theirs. Some are links to others. */
const bundles = [
  mainBundle,
  "/etc/ssl/cert.pem",
  "/etc/ssl/ca-bundle.pem",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];
/** Where the distributions' own programs look when they make the bundles anew: one certificate a file. */
const anchors = { debian: "/usr/local/share/ca-certificates", fedora: "/etc/pki/ca-trust/source/anchors" };
/** Largest bundle of an image that is added to, bytes. */
const largestBundle = 4_194_304;

const heading = "# Authorities of the node that this sandbox runs on";

/** Of programs that do not look at the bundles of the distribution; the first ones replace what is built in, the last adds to it. */
const environment: Readonly<Record<string, string>> = {
  SSL_CERT_FILE: mainBundle,
  REQUESTS_CA_BUNDLE: mainBundle,
  CURL_CA_BUNDLE: mainBundle,
  PIP_CERT: mainBundle,
  GIT_SSL_CAINFO: mainBundle,
  CARGO_HTTP_CAINFO: mainBundle,
  AWS_CA_BUNDLE: mainBundle,
  NIX_SSL_CERT_FILE: mainBundle,
  DENO_CERT: ownFile,
  NODE_EXTRA_CA_CERTS: ownFile,
};

/** Puts authorities of the node into what sandboxes trust, beside those of their image. */
export class SandboxTrust {
  readonly environment = environment;
  readonly #certificates: readonly string[];

  /** @param certificates PEM, one each */
  constructor(certificates: readonly string[]) {
    this.#certificates = certificates;
  }

  /**
   * Writes them into the sandbox's own files; its layers stay as they are. Idempotent.
   * @throws DSecError `file_error`, `disk_full`
   */
  async install(guest: Guest): Promise<void> {
    const { files } = guest;
    const own = `${heading}\n${this.#certificates.join("")}`;
    await Promise.all(["/etc/ssl/certs", anchors.debian].map((path) => files.mkdir(path, { parents: true })));
    await write(files, ownFile, own);
    await this.#anchor(files, anchors.debian);
    if (await isDirectory(files, anchors.fedora)) await this.#anchor(files, anchors.fedora);
    const found = await Promise.all(bundles.map(async (path) => ({ path, info: await look(files, path) })));
    // A link to a bundle that was added to shows what was added.
    const ordered = found.toSorted((a, b) => rank(a.info) - rank(b.info));
    let first: string | undefined;
    for (const { path, info } of ordered) {
      const content = info === undefined ? undefined : await read(files, path);
      if (content === undefined) continue;
      first ??= content;
      if (!content.includes(heading)) await write(files, path, joined(content, own));
    }
    if ((await read(files, mainBundle)) === undefined)
      await write(files, mainBundle, joined(first ?? "", own));
  }

  async #anchor(files: GuestFiles, directory: string): Promise<void> {
    for (const [index, certificate] of this.#certificates.entries())
      await write(files, `${directory}/dsec-${index + 1}.crt`, certificate);
  }
}

function joined(content: string, own: string): string {
  if (content.includes(heading)) return content;
  return `${content}${content === "" || content.endsWith("\n") ? "" : "\n"}${own}`;
}

function rank(info: GuestFileInfo | undefined): number {
  return info?.type === "file" ? 0 : 1;
}

async function look(files: GuestFiles, path: string): Promise<GuestFileInfo | undefined> {
  return unlessGone(files.stat(path, { followSymlink: false }));
}

async function isDirectory(files: GuestFiles, path: string): Promise<boolean> {
  return (await look(files, path))?.type === "directory";
}

/** Undefined for what is not there, is no file, or is too large to be a bundle. */
async function read(files: GuestFiles, path: string): Promise<string | undefined> {
  const info = await unlessGone(files.stat(path, { followSymlink: true }));
  if (info?.type !== "file" || info.size > largestBundle) return undefined;
  const pieces: Buffer[] = [];
  await files.read(path, { length: largestBundle }, (chunk) => void pieces.push(Buffer.from(chunk)));
  return Buffer.concat(pieces).toString("latin1");
}

/** Where a link has the name, in its place: it may lead anywhere. */
async function write(files: GuestFiles, path: string, content: string): Promise<void> {
  if ((await look(files, path))?.type === "symlink") await files.remove(path, { recursive: false });
  const bytes = Buffer.from(content, "latin1");
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    yield bytes;
  };
  await files.write(path, pieces(), { mode: 0o644, uid: 0, gid: 0, size: bytes.length });
}

/** Undefined where the guest says that there is no such file. */
async function unlessGone<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const errno = error instanceof DSecError ? error.details?.["errno"] : undefined;
    if (errno === "ENOENT" || errno === "ENOTDIR" || errno === "ELOOP") return undefined;
    throw error;
  }
}
