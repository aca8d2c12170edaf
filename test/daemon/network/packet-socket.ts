/** Frames sent as they are, as root with every capability could: Node has no packet sockets. */
import { closeDescriptor, libcFunction } from "../../../src/backends/linux/libc.ts";
import { linkIndex } from "../../../src/backends/linux/network-namespace.ts";

const packetFamily = 17;
const rawSocket = 3;
const socketAddressBytes = 20;

const socket = libcFunction<[number, number, number]>("socket", ["int domain", "int type", "int protocol"]);
const sendTo = libcFunction<[number, Uint8Array, number, number, Uint8Array, number]>("sendto", [
  "int fd",
  "const void *buffer",
  "size_t length",
  "int flags",
  "const void *address",
  "unsigned int length",
]);

/**
 * @param link name of a link of this network namespace
 * @param frames with their Ethernet headers, in hexadecimal
 * @throws LinuxError
 */
export function sendFrames(link: string, frames: readonly string[]): void {
  const fd = socket(packetFamily, rawSocket, 0);
  try {
    const address = Buffer.alloc(socketAddressBytes);
    address.writeUInt16LE(packetFamily, 0);
    address.writeInt32LE(linkIndex(link), 4);
    for (const frame of frames) {
      const bytes = Buffer.from(frame, "hex");
      sendTo(fd, bytes, bytes.length, 0, address, address.length);
    }
  } finally {
    closeDescriptor(fd);
  }
}
