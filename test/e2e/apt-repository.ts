/** A small signed apt repository for tests. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";

const run = promisify(execFile);

export interface AptRepository {
  /** What apt's `signed-by` names: the public key, as GnuPG exports it. */
  readonly keyring: Buffer;
}

/** Makes one in `directory`, of one package: `dsec-hello`, whose command of that name says hello. */
export async function makeAptRepository(directory: string): Promise<AptRepository> {
  const tree = join(directory, ".tree");
  await mkdir(join(tree, "DEBIAN"), { recursive: true });
  await mkdir(join(tree, "usr/bin"), { recursive: true });
  const control =
    "Package: dsec-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@example.test>\n";
  await writeFile(join(tree, "DEBIAN/control"), `${control}Description: says hello\n`);
  await writeFile(join(tree, "usr/bin/dsec-hello"), "#!/bin/sh\necho hello from a package\n", {
    mode: 0o755,
  });
  const file = "dsec-hello_1.0_all.deb";
  await run("dpkg-deb", ["--root-owner-group", "--build", tree, join(directory, file)]);
  const { size } = await stat(join(directory, file));
  const fields = await run("dpkg-deb", ["--field", join(directory, file)]);
  const packages = `${fields.stdout}Filename: ./${file}\nSize: ${size}\nSHA256: ${sha256(await readFile(join(directory, file)))}\n\n`;
  const lists = { Packages: Buffer.from(packages), "Packages.gz": gzipSync(packages) };
  const sums = Object.entries(lists).map(
    ([name, content]) => ` ${sha256(content)} ${content.length} ${name}\n`,
  );
  for (const [name, content] of Object.entries(lists)) await writeFile(join(directory, name), content);
  const release = `Origin: test\nSuite: test\nDate: ${new Date().toUTCString()}\nSHA256:\n${sums.join("")}`;
  await writeFile(join(directory, "Release"), release);
  return { keyring: await sign(directory) };
}

async function sign(directory: string): Promise<Buffer> {
  const home = join(directory, ".gnupg");
  await mkdir(home, { mode: 0o700 });
  const gpg = async (...args: readonly string[]): Promise<unknown> =>
    run("gpg", [
      "--homedir",
      home,
      "--batch",
      "--quiet",
      "--pinentry-mode",
      "loopback",
      "--passphrase",
      "",
      ...args,
    ]);
  try {
    await gpg("--quick-generate-key", "test <test@example.test>", "ed25519", "sign");
    await gpg("--output", join(directory, "InRelease"), "--clearsign", join(directory, "Release"));
    await gpg("--output", join(home, "keyring"), "--export");
    return await readFile(join(home, "keyring"));
  } finally {
    // Its agent would stay, without a terminal and without a client.
    await run("gpgconf", ["--homedir", home, "--kill", "all"]);
  }
}

function sha256(content: Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}
