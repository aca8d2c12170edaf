import { lstatSync, readlinkSync, type Stats } from "node:fs";
import { mountPoints } from "./mount-points.ts";

const userFiles = ["etc/passwd", "etc/group"] as const;
const maxUserFileBytes = 16 * 1024 * 1024;
/** The kernel's own limit. */
const maxLinks = 40;

/**
 * Refuses a root whose users' and groups' files a runtime would not come to the end of: it opens and reads them at each start,
 * for the user's name and groups, so a FIFO or device there holds it up for ever.
 *
 * @param root not yet running
 * @throws Error that names the entry
 */
export function checkUserFiles(root: string): void {
  for (const path of userFiles) {
    const status = follow(root, path);
    if (status === undefined) continue;
    if (!status.isFile()) throw new Error(`/${path} of the image is not a regular file`);
    if (status.size > maxUserFileBytes)
      throw new Error(`/${path} of the image is larger than ${maxUserFileBytes} bytes`);
  }
}

/**
 * What is there for who has `root` as its root; undefined when that is nothing. Nothing outside of it is looked at.
 *
 * @throws Error when it lies where a file system of the sandbox's own will be mounted
 */
function follow(root: string, path: string): Stats | undefined {
  const pending = path.split("/").reverse();
  let at: string[] = [];
  let status: Stats | undefined;
  for (let links = 0; pending.length > 0;) {
    const name = pending.pop() ?? "";
    if (name === "" || name === ".") continue;
    if (name === "..") {
      at.pop();
      status = lstatSync(pathBelow(root, at));
      continue;
    }
    if (at.length === 0 && mountPoints.some((point) => point === name))
      throw new Error(`/${path} of the image leads into /${name}`);
    const next = pathBelow(root, [...at, name]);
    status = lstatSync(next, { throwIfNoEntry: false });
    if (status?.isSymbolicLink() === true) {
      if (++links > maxLinks) return undefined;
      const target = readlinkSync(next, "latin1");
      if (target.startsWith("/")) at = [];
      pending.push(...target.split("/").reverse());
    } else if (status === undefined || (pending.length > 0 && !status.isDirectory())) {
      return undefined;
    } else {
      at.push(name);
    }
  }
  return status;
}

/** Names are any bytes but slashes: one character each. */
function pathBelow(root: string, names: readonly string[]): Buffer {
  return Buffer.concat([Buffer.from(`${root}/`), Buffer.from(names.join("/"), "latin1")]);
}
