/**
 * A TCP socket that takes connections to any address (IP_TRANSPARENT), as rules with `tproxy` hand them over. Node makes none;
 * a net.Server accepts on its descriptor, and the local address of what it accepts is where the client meant to go.
 */
import { closeDescriptor } from "./libc.ts";
import { bind, listen, setOption, SOCK_CLOEXEC, SOCK_STREAM, socket } from "./socket.ts";

const AF_INET = 2;
const SOCK_NONBLOCK = 0o4000;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const IPPROTO_IP = 0;
const IP_TRANSPARENT = 19;
const backlog = 4096;
const addressBytes = 16;

/**
 * @param address four bytes, of this machine
 * @returns a descriptor that listens; the caller closes it
 * @throws LinuxError
 */
export function openTransparentListener(address: Buffer, port: number): number {
  const fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  try {
    const on = Buffer.from([1, 0, 0, 0]);
    setOption(fd, SOL_SOCKET, SO_REUSEADDR, on, on.length);
    setOption(fd, IPPROTO_IP, IP_TRANSPARENT, on, on.length);
    const where = Buffer.alloc(addressBytes);
    where.writeUInt16LE(AF_INET, 0);
    where.writeUInt16BE(port, 2);
    address.copy(where, 4);
    bind.about(`${[...address].join(".")}:${port}`, fd, where, where.length);
    listen(fd, backlog);
    return fd;
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}
