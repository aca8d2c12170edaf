import type { LoggedPacket } from "../../../backends/linux/nf-log.ts";
import { NfLog } from "../../../backends/linux/nf-log.ts";
import { formatCidr } from "../../../protocol/cidr.ts";
import type { NetworkDecision } from "../../../protocol/network-decision.ts";
import { logPrefix } from "../firewall.ts";
import { judge } from "../policy/judge.ts";
import { tooManyFlows, unchecked } from "./flow.ts";
import type { GatedSandbox, GatedSandboxes } from "./gated-sandbox.ts";

export interface RefusalsParts {
  readonly sandboxes: GatedSandboxes;
  /** The name of the link of a number. */
  readonly linkName: (number: number) => string;
}

/** Milliseconds between two looks. */
const intervalMs = 50;
/** Packets taken at a look; the kernel keeps a few thousand more. */
const mostPackets = 1000;
const packetBytes = 64;
const etherType = { ipv4: 0x0800, ipv6: 0x86dd } as const;
const oddities: ReadonlyMap<string, "spoofed_source" | "source_route"> = new Map([
  [logPrefix.spoofed, "spoofed_source"],
  [logPrefix.routed, "source_route"],
]);
const protocolNames: Readonly<Record<number, NetworkDecision["protocol"]>> = {
  1: "icmp",
  6: "tcp",
  17: "udp",
  58: "icmp",
};

/** Tells sandboxes' logs what the kernel has refused. */
export class Refusals {
  readonly #parts: RefusalsParts;
  readonly #log: NfLog;
  readonly #timer: NodeJS.Timeout;

  /** @throws LinuxError EBUSY */
  constructor(group: number, parts: RefusalsParts) {
    this.#parts = parts;
    this.#log = new NfLog(group, packetBytes);
    this.#timer = setInterval(() => this.#look(), intervalMs);
  }

  get descriptor(): number {
    return this.#log.descriptor;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#log.close();
  }

  #look(): void {
    const { packets } = this.#log.read(mostPackets);
    for (const packet of packets) this.#tell(packet);
  }

  #tell(packet: LoggedPacket): void {
    const { sandboxes, linkName } = this.#parts;
    const read = readPacket(packet);
    const isIpv6 = packet.protocol === etherType.ipv6;
    const isSpoofed = packet.prefix === logPrefix.spoofed && !isIpv6;
    const byAddress = isSpoofed || read === undefined ? undefined : sandboxes.bySource(read.source);
    const sandbox = byAddress ?? sandboxes.byLink(linkName(packet.link));
    if (sandbox === undefined) return;
    if (read === undefined) {
      sandbox.decided({ stage: "connect", allowed: false, by: unchecked("malformed").by, protocol: "other" });
      return;
    }
    const { address, port, protocol } = read;
    const name = sandbox.pins.lastNameOf(address);
    const odd = isIpv6 ? "ipv6" : oddities.get(packet.prefix);
    const by =
      packet.prefix === logPrefix.crowded
        ? tooManyFlows.by
        : odd === undefined
          ? reasonOf(sandbox, read, name)
          : unchecked(odd).by;
    sandbox.decided({
      stage: "connect",
      allowed: false,
      by,
      protocol,
      address,
      ...(port !== undefined && { port }),
      ...(name !== undefined && { name }),
    });
  }
}

type Packet = {
  source: string;
  address: string;
  port: number | undefined;
  protocol: NetworkDecision["protocol"];
};

/** Why the kernel has refused what the policy in force says of it. */
function reasonOf(sandbox: GatedSandbox, { address, port, protocol }: Packet, name: string | undefined) {
  const verdict = judge(sandbox.policy, { address, port, protocol, name });
  // The name's rule would allow it: its answer has expired, or the policy has changed since.
  return verdict.allowed ? unchecked("address_not_resolved").by : verdict.by;
}

function readPacket({ protocol, payload }: LoggedPacket): Packet | undefined {
  switch (protocol) {
    case etherType.ipv4:
      return readIpv4(payload);
    case etherType.ipv6:
      return readIpv6(payload);
    default:
      return undefined;
  }
}

function readIpv4(bytes: Buffer): Packet | undefined {
  const headerBytes = ((bytes.at(0) ?? 0) & 0xf) * 4;
  if (bytes.length < Math.max(20, headerBytes)) return undefined;
  const protocol = protocolNames[bytes.readUInt8(9)] ?? "other";
  const hasPort = protocol === "tcp" || protocol === "udp";
  const port = hasPort && bytes.length >= headerBytes + 4 ? bytes.readUInt16BE(headerBytes + 2) : undefined;
  return {
    source: bytes.subarray(12, 16).join("."),
    address: bytes.subarray(16, 20).join("."),
    port,
    protocol,
  };
}

/** Of packets with extension headers, without protocol and port. */
function readIpv6(bytes: Buffer): Packet | undefined {
  const headerBytes = 40;
  if (bytes.length < headerBytes) return undefined;
  const protocol = protocolNames[bytes.readUInt8(6)] ?? "other";
  const hasPort = protocol === "tcp" || protocol === "udp";
  const port = hasPort && bytes.length >= headerBytes + 4 ? bytes.readUInt16BE(headerBytes + 2) : undefined;
  const text = (at: number) =>
    formatCidr({ family: 6, bytes: [...bytes.subarray(at, at + 16)], prefixLength: 128 });
  return { source: text(8), address: text(24), port, protocol };
}
