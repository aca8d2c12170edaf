/** NFLOG: packets that rules with `log group` copy to a socket. */
import { isErrno } from "./libc.ts";
import { attribute, attributesOf, netlinkProtocol, NetlinkSocket } from "./netlink-socket.ts";

const subsystem = 4;
const message = { packet: 0, config: 1 } as const;
const bind = 1;
const copyPacket = 2;
/** Hundredths of a second that the kernel gathers packets for. */
const delayHundredths = 2;
const attributeType = { packetHeader: 1, inputLink: 4, payload: 9, prefix: 10 } as const;

export interface LoggedPacket {
  /** Of the rule. */
  readonly prefix: string;
  /** EtherType, e.g. 0x0800. */
  readonly protocol: number;
  /** Number of the link it came in by. */
  readonly link: number;
  /** From the network header on, at most the bytes asked for. */
  readonly payload: Buffer;
}

/** The copies of one group. Nobody else may have it. */
export class NfLog {
  readonly #socket = new NetlinkSocket(netlinkProtocol.netfilter);

  /**
   * @param group 1 to 65535
   * @param bytes kept of each packet
   * @throws LinuxError EBUSY
   */
  constructor(group: number, bytes: number) {
    const range = Buffer.alloc(6);
    range.writeUInt32BE(bytes);
    range.writeUInt8(copyPacket, 4);
    const configure = (...attributes: readonly Buffer[]) => ({
      name: `log group ${group}`,
      type: (subsystem << 8) | message.config,
      flags: 0,
      body: Buffer.concat([Buffer.from([0, 0, group >> 8, group & 0xff]), ...attributes]),
    });
    const delay = Buffer.alloc(4);
    delay.writeUInt32BE(delayHundredths);
    try {
      this.#socket.request(
        configure(attribute(1, Buffer.from([bind]))),
        configure(attribute(2, range)),
        configure(attribute(4, delay)),
      );
    } catch (error) {
      this.#socket.close();
      throw error;
    }
  }

  /** Packets logged since the last call, at most `limit` and one datagram; `lost` when the kernel had to leave some out. */
  read(limit: number): { packets: LoggedPacket[]; lost: boolean } {
    const packets: LoggedPacket[] = [];
    try {
      while (packets.length < limit) {
        const received = this.#socket.receive();
        if (received.length === 0) break;
        for (const { type, body } of received)
          if (type === ((subsystem << 8) | message.packet)) packets.push(decode(body.subarray(4)));
      }
    } catch (error) {
      if (!isErrno(error, "ENOBUFS")) throw error;
      return { packets, lost: true };
    }
    return { packets, lost: false };
  }

  get descriptor(): number {
    return this.#socket.descriptor;
  }

  close(): void {
    this.#socket.close();
  }
}

function decode(body: Buffer): LoggedPacket {
  const attributes = attributesOf(body);
  const prefix = attributes.get(attributeType.prefix)?.toString("latin1") ?? "";
  return {
    prefix: prefix.replace(/\0.*$/s, ""),
    protocol: attributes.get(attributeType.packetHeader)?.readUInt16BE(0) ?? 0,
    link: attributes.get(attributeType.inputLink)?.readUInt32BE(0) ?? 0,
    payload: attributes.get(attributeType.payload) ?? Buffer.alloc(0),
  };
}
