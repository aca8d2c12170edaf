import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { DSecError } from "../../../protocol/errors.ts";

/** Bytes; a bundle of all public authorities has a quarter of it. */
const largestFile = 1_048_576;
const mostCertificates = 256;

const block = /-----BEGIN ([A-Z0-9 ]+)-----[^-]*-----END \1-----/g;

/**
 * Reads the authorities that an operator wants sandboxes to trust.
 * @returns certificates, PEM, one each
 * @throws DSecError `config_invalid` saying what is wrong with the file
 */
export async function readCaBundle(file: string): Promise<readonly string[]> {
  const fail = (message: string, cause?: unknown): never => {
    throw new DSecError("config_invalid", `--ca-bundle: ${file} ${message}`, {
      ...(cause !== undefined && { cause }),
    });
  };
  let content = "";
  try {
    content = await readFile(file, "latin1");
  } catch (cause) {
    return fail("cannot be read", cause);
  }
  if (content.length > largestFile) return fail(`is longer than ${largestFile} bytes`);
  const blocks = [...content.matchAll(block)];
  if (blocks.length === 0) return fail("holds no certificate in PEM form");
  if (blocks.length > mostCertificates) return fail(`holds more than ${mostCertificates} certificates`);
  return blocks.map(([text, kind], index) => {
    // A private key must not get into sandboxes by mistake.
    if (kind !== "CERTIFICATE")
      return fail(`holds a ${kind?.toLowerCase() ?? ""}, and may hold certificates only`);
    try {
      const certificate = new X509Certificate(text);
      if (!certificate.ca)
        return fail(`: certificate ${index + 1} (${certificate.subject}) is no authority's`);
      // Nothing of the file but the certificates themselves: no comments, no other bytes.
      return certificate.toString();
    } catch (cause) {
      if (cause instanceof DSecError) throw cause;
      return fail(`: certificate ${index + 1} cannot be read`, cause);
    }
  });
}
