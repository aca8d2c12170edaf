import { accessSync, constants, openSync, readSync, closeSync, realpathSync } from "node:fs";
import { join } from "node:path";

/** Where system tools are, also when PATH has no sbin. */
const DIRECTORIES = [
  ...new Set([...(process.env["PATH"] ?? "").split(":"), "/usr/local/sbin", "/usr/sbin", "/sbin", "/bin"]),
].filter((directory) => directory.startsWith("/"));

/**
 * @param {string} name
 * @returns {string | undefined} the path of the first executable of that name
 */
export function findCommand(name) {
  return DIRECTORIES.map((directory) => join(directory, name)).find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** @returns {string | undefined} a busybox that runs in an empty root; most distributions' default one does not */
export function findStaticBusybox() {
  return ["busybox", "busybox-static", "busybox.static"]
    .map(findCommand)
    .find((path) => path !== undefined && isStaticElf(realpathSync(path)));
}

const PT_INTERP = 3;

/**
 * A 64-bit ELF file without a program interpreter needs no libraries.
 *
 * @param {string} path
 */
function isStaticElf(path) {
  const head = Buffer.alloc(4096);
  const file = openSync(path, "r");
  readSync(file, head, 0, head.length, 0);
  closeSync(file);
  if (head.toString("latin1", 0, 5) !== "\x7fELF\x02") return false;
  const tableOffset = Number(head.readBigUInt64LE(32));
  const entrySize = head.readUInt16LE(54);
  const entries = head.readUInt16LE(56);
  for (let entry = 0; entry < entries; entry += 1) {
    if (head.readUInt32LE(tableOffset + entry * entrySize) === PT_INTERP) return false;
  }
  return true;
}
