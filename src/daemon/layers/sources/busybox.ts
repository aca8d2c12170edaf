import { chmod, copyFile, lutimes, mkdir, open, readdir, symlink, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { DSecError } from "../../../protocol/errors.ts";
import { findProgram, runProgram } from "../../resources/program.ts";
import type { LayerSource } from "./source.ts";

const directories: readonly (readonly [path: string, mode: number])[] = [
  ["bin", 0o755],
  ["dev", 0o755],
  ["etc", 0o755],
  ["home", 0o755],
  ["lib", 0o755],
  ["mnt", 0o755],
  ["opt", 0o755],
  ["proc", 0o555],
  ["root", 0o700],
  ["run", 0o755],
  ["sbin", 0o755],
  ["srv", 0o755],
  ["sys", 0o555],
  ["tmp", 0o1777],
  ["usr", 0o755],
  ["usr/bin", 0o755],
  ["usr/lib", 0o755],
  ["usr/sbin", 0o755],
  ["var", 0o755],
  ["var/log", 0o755],
  ["var/tmp", 0o1777],
];

const files: Readonly<Record<string, string>> = {
  "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
  "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
  "etc/shadow": "root:*:::::::\nnobody:*:::::::\n",
  "etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
  "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
  "etc/resolv.conf": "",
  "etc/profile": "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
  "etc/os-release": 'NAME="BusyBox"\nID=busybox\nPRETTY_NAME="BusyBox"\n',
};

/** The smallest base: the host's static busybox, a link for each of its commands and the files that programs expect. */
export const busyboxSource: LayerSource = {
  prepare: async (into, { onProgress, signal }) => {
    const busybox = await findStaticBusybox();
    onProgress?.("laying out busybox");
    await mkdir(into);
    for (const [path, mode] of directories) {
      await mkdir(join(into, path));
      await chmod(join(into, path), mode);
    }
    for (const [path, content] of Object.entries(files))
      await writeFile(join(into, path), content, { mode: 0o644 });
    await chmod(join(into, "etc/shadow"), 0o640);
    await copyFile(busybox, join(into, "bin/busybox"));
    await chmod(join(into, "bin/busybox"), 0o755);
    const commands = await runProgram(busybox, ["--list-full"], signal === undefined ? {} : { signal });
    for (const command of commands
      .split("\n")
      .filter((path) => path !== "" && basename(path) !== "busybox")) {
      await mkdir(join(into, dirname(command)), { recursive: true });
      await symlink("/bin/busybox", join(into, command));
    }
    await setAllTimes(into);
    return into;
  },
  origin: async () => ({ from: "busybox" }),
};

/** The same busybox gives the same layer whenever it is built. */
async function setAllTimes(root: string): Promise<void> {
  for (const path of [...(await readdir(root, { recursive: true })), "."])
    await lutimes(join(root, path), 0, 0);
}

async function findStaticBusybox(): Promise<string> {
  for (const name of ["busybox", "busybox-static", "busybox.static"]) {
    const path = findProgram(name);
    if (path !== undefined && (await isStaticElf(path))) return path;
  }
  throw new DSecError(
    "backend_unavailable",
    "no static busybox is installed (Debian's package is busybox-static)",
  );
}

const programInterpreter = 3;

/** Whether the file is a 64-bit ELF program that needs no libraries: it names no program interpreter. */
async function isStaticElf(path: string): Promise<boolean> {
  const head = Buffer.alloc(4096);
  const file = await open(path, "r");
  try {
    await file.read(head, 0, head.length, 0);
  } finally {
    await file.close();
  }
  if (head.toString("latin1", 0, 5) !== "\x7fELF\x02") return false;
  const table = Number(head.readBigUInt64LE(32));
  const entryBytes = head.readUInt16LE(54);
  const entries = head.readUInt16LE(56);
  for (let entry = 0; entry < entries && table + (entry + 1) * entryBytes <= head.length; entry += 1) {
    if (head.readUInt32LE(table + entry * entryBytes) === programInterpreter) return false;
  }
  return true;
}
