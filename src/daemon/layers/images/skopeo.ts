import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DSecError, type ErrorCode } from "../../../protocol/errors.ts";
import { runProgram } from "../../resources/program.ts";

/** How a registry is reached. */
export interface RegistryAccess {
  /** Whether it must have a certificate that can be trusted; by default all but those on this machine must, as under docker. */
  readonly tlsVerify?: boolean;
  /** File of credentials; without it those of `skopeo login` and `docker login` count. */
  readonly authFile?: string;
}

/** Where a copy goes: a layout whose blobs lie in a folder of their own, so that the next copy finds them. */
export interface LayoutTarget {
  readonly layout: string;
  readonly blobs: string;
}

/** A copy that gets a failure of the network tries again so often. */
const retries = 2;
const inspectTimeout = "60s";

/** What a registry answers for `reference`, unchanged. @throws DSecError see {@link explainSkopeo} */
export async function inspectRaw(
  reference: string,
  access: RegistryAccess,
  signal: AbortSignal | undefined,
): Promise<Buffer> {
  const args = [
    ...common(),
    `--command-timeout=${inspectTimeout}`,
    "inspect",
    "--raw",
    ...(verifies(reference, access) ? [] : ["--tls-verify=false"]),
    ...(access.authFile === undefined ? [] : [`--authfile=${access.authFile}`]),
    `docker://${reference}`,
  ];
  return Buffer.from(await skopeo(args, reference, signal));
}

/**
 * Copies one image.
 *
 * @param source as skopeo names it
 * @throws DSecError see {@link explainSkopeo}; `disk_full`, `cancelled`
 */
export async function copyImage(
  source: string,
  target: LayoutTarget,
  access: RegistryAccess,
  signal: AbortSignal | undefined,
): Promise<void> {
  await mkdir(target.layout, { recursive: true });
  const isRegistry = source.startsWith("docker://");
  const verify = !isRegistry || verifies(source.slice("docker://".length), access);
  const args = [
    ...common(),
    // big temporary files belong where the rest of the work is
    `--tmpdir=${target.layout}`,
    "copy",
    "--quiet",
    `--retry-times=${retries}`,
    "--dest-oci-accept-uncompressed-layers",
    `--dest-shared-blob-dir=${target.blobs}`,
    ...(verify ? [] : ["--src-tls-verify=false"]),
    ...(access.authFile === undefined ? [] : [`--src-authfile=${access.authFile}`]),
    source,
    `oci:${target.layout}:image`,
  ];
  await skopeo(args, source, signal);
}

/** Where no policy is installed nothing is asked of signatures. */
function common(): string[] {
  const home = process.env["HOME"];
  const policies = ["/etc/containers", ...(home === undefined ? [] : [join(home, ".config/containers")])];
  return policies.some((folder) => existsSync(join(folder, "policy.json"))) ? [] : ["--insecure-policy"];
}

function verifies(reference: string, { tlsVerify }: RegistryAccess): boolean {
  return tlsVerify ?? !/^(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]+)?\//.test(reference);
}

async function skopeo(
  args: readonly string[],
  what: string,
  signal: AbortSignal | undefined,
): Promise<string> {
  try {
    return await runProgram("skopeo", args, signal === undefined ? {} : { signal });
  } catch (error) {
    throw explainSkopeo(what, error);
  }
}

const explanations: readonly (readonly [said: RegExp, code: ErrorCode, message: (what: string) => string])[] =
  [
    [
      /digest did not match|does not match (?:the )?(?:expected )?digest|verification failed|checksum mismatch|unexpected digest/i,
      "digest_mismatch",
      (what) => `${what} has other content than its digest says`,
    ],
    [
      /unauthorized|authentication required|invalid username|denied|status code 40[13]|forbidden/i,
      "registry_denied",
      (what) => `the registry refuses to hand out ${what}; docker login, or --authfile, gives credentials`,
    ],
    [
      /manifest unknown|name unknown|not ?found|no such image|does not exist|no image found|no descriptor found|status(?: code)?:? 404/i,
      "image_not_found",
      (what) => `there is no image ${what}`,
    ],
    [
      /unsupported (?:mime|manifest|media)|unrecognized manifest|unknown media type|unsupported schema|unimplemented manifest|schema1|could not parse manifest/i,
      "unsupported_media_type",
      (what) => `${what} is of a kind that cannot be imported`,
    ],
    [
      /connection refused|connection reset|no such host|timeout|timed out|deadline exceeded|network is unreachable|no route|x509|tls|server gave HTTP|unexpected EOF|: EOF|server misbehaving|temporary failure|HTTP status:? 5|status code 5|internal server error|bad gateway|pinging container registry|too ?many ?requests/i,
      "registry_unreachable",
      (what) => `the registry of ${what} cannot be reached`,
    ],
    [
      /invalid character|unexpected end of JSON|tar header|invalid tar|missing item|index\.json: no such file/i,
      "image_invalid",
      (what) => `${what} is damaged`,
    ],
  ];

/** `digest_mismatch`, `registry_denied`, `image_not_found`, `unsupported_media_type`, `registry_unreachable`, `image_invalid`; else as it was. */
function explainSkopeo(what: string, error: unknown): unknown {
  if (!(error instanceof DSecError) || error.code !== "internal") return error;
  // digits of addresses and digests are not codes of HTTP
  const words = error.message.replaceAll(what, "").replaceAll(/\b[0-9a-f]{12,}\b|:[0-9]+\b/g, "");
  for (const [said, code, message] of explanations) {
    if (said.test(words))
      return new DSecError(code, message(what), { cause: error, details: { image: what } });
  }
  return error;
}
