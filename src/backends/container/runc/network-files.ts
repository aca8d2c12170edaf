import { isErrno } from "../../linux/libc.ts";
import { RootedDirectory } from "../../linux/rooted-directory.ts";

export interface SandboxNames {
  readonly hostname: string;
  readonly address: string | undefined;
  /** Address of its name server. */
  readonly nameServer: string | undefined;
}

/**
 * Writes the three files that programs look names up in. They are ordinary files of the sandbox, which may change them; mounts
 * could not be renamed over, and what is written to them would not count towards the disk limit. An image without /etc
 * stays without.
 *
 * @param root the sandbox's root, not yet running
 * @throws LinuxError, Error EISDIR
 */
export function writeNetworkFiles(root: string, { hostname, address, nameServer }: SandboxNames): void {
  let etc: RootedDirectory;
  try {
    etc = new RootedDirectory(root, "etc");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return;
    throw error;
  }
  try {
    etc.replaceFile("hostname", `${hostname}\n`);
    etc.replaceFile("hosts", hosts(hostname, address));
    // The image's resolvers are those of the machine it was built on.
    const resolver =
      nameServer === undefined ? "# no name server can be reached" : `nameserver ${nameServer}`;
    etc.replaceFile("resolv.conf", `${resolver}\n`);
  } finally {
    etc[Symbol.dispose]();
  }
}

function hosts(hostname: string, address: string | undefined): string {
  return [
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    `${address ?? "127.0.1.1"}\t${hostname}`,
    "",
  ].join("\n");
}
