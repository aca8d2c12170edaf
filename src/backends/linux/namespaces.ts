/**
 * Namespaces held by descriptors. Node runs on several threads and setns(2) moves one of them, so nothing here enters a
 * namespace: whoever is to live in one is started with its path.
 */
import { closeSync, fstatSync, openSync, rmSync } from "node:fs";
import { unmountIfMounted } from "./mount.ts";

export interface NamespaceHandle {
  readonly fd: number;
  /** Identifies the namespace on this machine while it exists. */
  readonly inode: number;
  /** By which another process can open it, as long as this one holds it. */
  readonly path: string;
  /** Lets go; the namespace goes when nothing else holds it. Idempotent. */
  close(): void;
}

/** Opens a namespace by its path: /proc/<pid>/ns/net, or what `ip netns add` pinned. @throws Error ENOENT */
export function openNamespace(path: string): NamespaceHandle {
  let fd: number | undefined = openSync(path, "r");
  return {
    fd,
    inode: fstatSync(fd).ino,
    path: `/proc/${process.pid}/fd/${fd}`,
    close() {
      if (fd === undefined) return;
      closeSync(fd);
      fd = undefined;
    },
  };
}

/** Removes the pin that `ip netns add` made; whoever is inside or holds a descriptor keeps the namespace. Idempotent. */
export function removeNamespacePin(path: string): void {
  unmountIfMounted(path);
  rmSync(path, { force: true });
}
