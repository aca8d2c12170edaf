import { X509Certificate } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readCaBundle } from "../../../../src/daemon/network/authorities/ca-bundle.ts";
import { temporaryDir } from "../../daemon-fixture.ts";
import { makeAuthority } from "./authority.ts";

async function read(content: string): Promise<readonly string[]> {
  const file = join(await temporaryDir(), "ca.pem");
  await writeFile(file, content);
  return readCaBundle(file);
}

describe("a bundle of authorities", () => {
  test("is its certificates, one by one, and nothing else that is in the file", async () => {
    const [first, second] = [await makeAuthority("first"), await makeAuthority("second")];
    const found = await read(`# ours\n${first.cert}\nnotes: secret\n${second.cert}`);
    expect(found.map((text) => new X509Certificate(text).subject)).toEqual(["CN=first", "CN=second"]);
    expect(found.join("")).not.toContain("secret");
  });

  test("with a private key is refused, so that none gets into sandboxes", async () => {
    const { cert, key } = await makeAuthority("ours");
    await expect(read(`${cert}\n${key}`)).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringMatching(/holds a private key, and may hold certificates only$/) as string,
    });
  });

  test("with a server's certificate is refused", async () => {
    const authority = await makeAuthority("ours");
    const { cert } = await authority.sign("server.example");
    await expect(read(cert)).rejects.toThrow("certificate 1 (CN=server.example) is no authority's");
  });

  test.each([
    ["nothing in it", "", "holds no certificate in PEM form"],
    [
      "text that is no certificate",
      "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
      "certificate 1 cannot be read",
    ],
    ["more than a mebibyte", "x".repeat(1_048_577), "is longer than 1048576 bytes"],
  ])("with %s is refused", async (_, content, message) => {
    await expect(read(content)).rejects.toThrow(message);
  });

  test("that cannot be read is refused by its flag", async () => {
    const file = join(await temporaryDir(), "none.pem");
    await expect(readCaBundle(file)).rejects.toMatchObject({
      code: "config_invalid",
      message: `--ca-bundle: ${file} cannot be read`,
    });
  });
});
