/**
 * A listening Unix socket that only an inheriting child accepts on. A net.Server will not do: Node would accept the
 * connections itself, and closing it removes the path.
 */
import { closeSync, fchmodSync, rmSync } from "node:fs";
import { bind, listen, SOCK_CLOEXEC, SOCK_STREAM, socket } from "./socket.ts";

const AF_UNIX = 1;
const backlog = 16;
const pathOffset = 2;

/** Bytes a socket's path may have: sockaddr_un less its terminating zero. */
export const longestSocketPath = 107;

export interface ListeningSocket {
  /** To be inherited; closed at exec of any child that is not given it. */
  readonly fd: number;
  readonly path: string;
  /** Closes the descriptor in this process; the path stays, and a child that inherited it goes on. Idempotent. */
  close(): void;
}

/**
 * Binds and listens on `path`, mode 0600 from its first moment.
 *
 * @throws LinuxError (EADDRINUSE when the path exists), RangeError when the path is too long
 */
export function openListeningSocket(path: string): ListeningSocket {
  const bytes = Buffer.byteLength(path);
  if (bytes > longestSocketPath)
    throw new RangeError(
      `a socket's path may have ${longestSocketPath} bytes, this one has ${bytes}: ${path}`,
    );
  const address = Buffer.alloc(pathOffset + bytes + 1);
  address.writeUInt16LE(AF_UNIX, 0);
  address.write(path, pathOffset);
  let fd: number | undefined = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const close = () => {
    if (fd === undefined) return;
    closeSync(fd);
    fd = undefined;
  };
  let bound = false;
  try {
    // bind(2) gives the path the mode of the socket itself.
    fchmodSync(fd, 0o600);
    bind.about(path, fd, address, address.length);
    bound = true;
    listen.about(path, fd, backlog);
    return { fd, path, close };
  } catch (error) {
    close();
    if (bound) rmSync(path, { force: true });
    throw error;
  }
}
