import { closeSync, fstatSync, openSync, statSync } from "node:fs";
import { isErrno } from "../../linux/libc.ts";
import { isInContainer } from "./container-cgroup.ts";

/**
 * Opens the network namespace of a container; the caller closes it. Undefined where its processes cannot be seen, or it has no
 * namespace of its own.
 *
 * @param pid its first process, as its Docker daemon knows it
 */
export function openContainerNetwork(containerId: string, pid: number): number | undefined {
  let namespace: number;
  try {
    namespace = openSync(`/proc/${pid}/ns/net`, "r");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
  // Looked at only now: a number that is still the container's was so when the namespace was opened.
  const isTheirs =
    isInContainer(containerId, pid) && fstatSync(namespace).ino !== statSync("/proc/self/ns/net").ino;
  if (isTheirs) return namespace;
  closeSync(namespace);
  return undefined;
}
