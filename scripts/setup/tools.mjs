import { existsSync, readFileSync, realpathSync } from "node:fs";
import { basename } from "node:path";
import { defaultDockerSocket, dockerAnswers } from "./docker-socket.mjs";
import { findCommand, findStaticBusybox } from "./find-command.mjs";

/**
 * @typedef {object} Tool
 * @property {string} name what the user would look for
 * @property {string} purpose what does not work without it
 * @property {() => boolean | Promise<boolean>} present by what is there, not by package: any origin will do
 * @property {{ apt: string | null, dnf: string | null, apk: string | null }} packages null: not packaged there
 * @property {boolean} [testsOnly]
 */

/** @param {string} name */
const command = (name) => () => findCommand(name) !== undefined;

/** @param {string} name */
const everywhere = (name) => ({ apt: name, dnf: name, apk: name });

/** Whose bpftool comes with a kernel's own package. */
function isUbuntu() {
  return existsSync("/etc/os-release") && /^ID=ubuntu$/m.test(readFileSync("/etc/os-release", "utf8"));
}

/** @type {Tool[]} */
const TOOLS = [
  {
    name: "runc",
    purpose: "containers (backend container, engine runc)",
    present: command("runc"),
    packages: everywhere("runc"),
  },
  {
    name: "crun",
    purpose: "starting containers at full speed (runc takes three times the CPU time)",
    present: command("crun"),
    packages: everywhere("crun"),
  },
  {
    name: "mkfs.erofs",
    purpose: "building layers",
    present: command("mkfs.erofs"),
    packages: everywhere("erofs-utils"),
  },
  { name: "nft", purpose: "the network pool", present: command("nft"), packages: everywhere("nftables") },
  {
    name: "ip",
    purpose: "the network pool",
    present: command("ip"),
    packages: { apt: "iproute2", dnf: "iproute", apk: "iproute2" },
  },
  {
    name: "musl-gcc",
    purpose: "building the agent that runs in every sandbox",
    present: () => findCommand(existsSync("/etc/alpine-release") ? "gcc" : "musl-gcc") !== undefined,
    packages: { apt: "musl-tools", dnf: "musl-gcc", apk: "build-base" },
  },
  { name: "make", purpose: "building the agent", present: command("make"), packages: everywhere("make") },
  {
    name: "busybox (static)",
    purpose: "the busybox base layer",
    present: () => findStaticBusybox() !== undefined,
    packages: { apt: "busybox-static", dnf: "busybox", apk: "busybox-static" },
  },
  {
    name: "mmdebstrap",
    purpose: "the debian base layer",
    present: command("mmdebstrap"),
    packages: { apt: "mmdebstrap", dnf: "mmdebstrap", apk: null },
  },
  {
    name: "Debian's archive keys",
    purpose: "the debian base layer",
    present: () => existsSync("/usr/share/keyrings/debian-archive-keyring.gpg"),
    packages: { apt: "debian-archive-keyring", dnf: "debian-keyring", apk: "debian-archive-keyring" },
  },
  {
    name: "mkfs.btrfs",
    purpose: "hard disk limits where the file system has no project quota",
    present: command("mkfs.btrfs"),
    packages: everywhere("btrfs-progs"),
  },
  {
    name: "losetup",
    purpose: "hard disk limits where the file system has no project quota",
    present: () => {
      const path = findCommand("losetup");
      // busybox's has neither --associated nor --show
      return path !== undefined && !basename(realpathSync(path)).startsWith("busybox");
    },
    packages: { apt: "mount", dnf: "util-linux", apk: "losetup" },
  },
  {
    name: "skopeo",
    purpose: "importing images from registries and archives",
    present: command("skopeo"),
    packages: everywhere("skopeo"),
  },
  {
    name: "docker-registry",
    purpose: "the tests of imports from a registry",
    present: command("docker-registry"),
    packages: { apt: "docker-registry", dnf: null, apk: "docker-registry" },
    testsOnly: true,
  },
  {
    name: "rclone",
    purpose:
      "layer stores in object storage (--layer-store rclone:REMOTE:PATH), and the tests of stores that fail",
    present: command("rclone"),
    packages: everywhere("rclone"),
    testsOnly: true,
  },
  {
    name: "fusermount3",
    purpose:
      "layer stores in object storage (--layer-store rclone:REMOTE:PATH), and the tests of stores that fail",
    present: command("fusermount3"),
    packages: everywhere("fuse3"),
    testsOnly: true,
  },
  {
    name: "dockerd",
    purpose: "the tests and benchmarks against Docker (no Docker socket answers here)",
    present: async () => findCommand("dockerd") !== undefined || (await dockerAnswers(defaultDockerSocket())),
    packages: { apt: "docker.io", dnf: "moby-engine", apk: "docker" },
    testsOnly: true,
  },
  {
    name: "bpftool",
    purpose: "the audit of sandboxes' processes (dsec up --audit), and its tests",
    present: command("bpftool"),
    packages: { ...everywhere("bpftool"), apt: isUbuntu() ? null : "bpftool" },
    testsOnly: true,
  },
  {
    name: "clang",
    purpose: "building the audit of sandboxes' processes, and its tests",
    present: command("clang"),
    packages: everywhere("clang"),
    testsOnly: true,
  },
  {
    name: "ps",
    purpose: "the tests that look for processes left behind",
    present: command("ps"),
    packages: { apt: "procps", dnf: "procps-ng", apk: "procps" },
    testsOnly: true,
  },
  {
    name: "valgrind",
    purpose: "the agent's memory tests",
    present: command("valgrind"),
    packages: everywhere("valgrind"),
    testsOnly: true,
  },
  {
    name: "openssl",
    purpose: "the tests with certificates of their own",
    present: command("openssl"),
    packages: everywhere("openssl"),
    testsOnly: true,
  },
  {
    name: "gpg",
    purpose: "the tests with a signed package repository",
    present: command("gpg"),
    packages: { apt: "gnupg", dnf: "gnupg2", apk: "gnupg" },
    testsOnly: true,
  },
  {
    name: "dpkg-deb",
    purpose: "the tests with a package repository",
    present: command("dpkg-deb"),
    packages: everywhere("dpkg"),
    testsOnly: true,
  },
  {
    name: "pip",
    purpose: "the tests of pip in sandboxes",
    present: command("pip3"),
    packages: { apt: "python3-pip", dnf: "python3-pip", apk: "py3-pip" },
    testsOnly: true,
  },
  {
    name: "tmux",
    purpose: "the tests on a real terminal",
    present: command("tmux"),
    packages: everywhere("tmux"),
    testsOnly: true,
  },
];

/** @param {{ tests: boolean }} wanted */
export async function missingTools({ tests }) {
  const wanted = TOOLS.filter((tool) => tests || !tool.testsOnly);
  const present = await Promise.all(wanted.map(async (tool) => tool.present()));
  return wanted.filter((_, index) => !present[index]);
}
