/**
 * Network namespaces of the calling thread. Only for a thread of its own: whatever else happens on the
 * thread in between happens in the other namespace.
 */
import { closeDescriptor, ioctl, isErrno, libcFunction } from "./libc.ts";
import { SOCK_CLOEXEC, socket } from "./socket.ts";

const newNetwork = 0x4000_0000;
const closeOnExec = 0o2_000_000;

const internetFamily = 2;
const datagrams = 2;
const getLinkName = 0x8910;

const openFunction = libcFunction<[string, number]>("open", ["const char *path", "int flags"]);
const unshareFunction = libcFunction<[number]>("unshare", ["int flags"]);
const setnsFunction = libcFunction<[number, number]>("setns", ["int fd", "int type"]);
const indexFunction = libcFunction<[string]>("if_nametoindex", ["const char *name"]);

/** A descriptor of the network namespace that the calling thread is in; the caller closes it. @throws LinuxError */
export function openNetworkNamespace(): number {
  return openFunction("/proc/thread-self/ns/net", closeOnExec);
}

/**
 * Makes a network namespace and runs `work` in it; the thread is back in `home` afterwards.
 *
 * @param home descriptor of the namespace that the thread is in
 * @throws LinuxError
 */
export function inNewNetworkNamespace<T>(home: number, work: () => T): T {
  unshareFunction(newNetwork);
  try {
    return work();
  } finally {
    setnsFunction(home, newNetwork);
  }
}

/**
 * Runs `work` in a network namespace; the thread is back in `home` afterwards.
 *
 * @param home descriptor of the namespace that the thread is in
 * @throws LinuxError
 */
export function inNetworkNamespace<T>(home: number, namespace: number, work: () => T): T {
  setnsFunction(namespace, newNetwork);
  try {
    return work();
  } finally {
    setnsFunction(home, newNetwork);
  }
}

/** The number of a link in the thread's namespace; 0 when there is none of that name. */
export function linkIndex(name: string): number {
  return indexFunction(name);
}

/** The name of a link in the thread's namespace by its number; undefined when there is none. */
export function linkName(index: number): string | undefined {
  const nameBytes = 16;
  const request = Buffer.alloc(40);
  request.writeInt32LE(index, nameBytes);
  const fd = socket(internetFamily, datagrams | SOCK_CLOEXEC, 0);
  try {
    ioctl("SIOCGIFNAME", fd, getLinkName, request);
    return request.subarray(0, nameBytes).toString("latin1").replace(/\0.*$/s, "");
  } catch (error) {
    if (isErrno(error, "ENODEV")) return undefined;
    throw error;
  } finally {
    closeDescriptor(fd);
  }
}
