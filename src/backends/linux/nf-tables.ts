/** nf_tables: elements of named sets and maps, changed in one transaction and without starting a program. */
import {
  attribute,
  messageFlag,
  nested,
  type NetlinkMessage,
  netlinkProtocol,
  NetlinkSocket,
  text,
} from "./netlink-socket.ts";

const subsystem = 10;
const family = { unspecified: 0, inet: 1 } as const;
const batch = { begin: 16, end: 17 } as const;
const message = { newElements: 12, deleteElements: 14 } as const;
const jumpVerdict = -3;
/** Elements in a message: an attribute ends at 65,535 bytes. */
const elementsInMessage = 400;

export interface SetElement {
  /** Each field padded to four bytes. */
  readonly key: Buffer;
  /** The chain to jump to, where the set is a verdict map. */
  readonly chain?: string;
}

/** Elements to be added to or deleted from a set. A deleted one must be there; an added one may. */
export interface ElementChange {
  readonly set: string;
  readonly change: "add" | "delete";
  readonly elements: readonly SetElement[];
}

/** Changes elements of one table of the family inet. */
export class NfTable {
  readonly #name: string;
  readonly #socket = new NetlinkSocket(netlinkProtocol.netfilter);

  /** @throws LinuxError */
  constructor(name: string) {
    this.#name = name;
  }

  /** All of it or nothing, in this order, at one moment for every packet. @throws LinuxError */
  change(changes: readonly ElementChange[]): void {
    const messages = changes.flatMap((change) => this.#messages(change));
    if (messages.length === 0) return;
    this.#socket.request(marker("begin"), ...messages, marker("end"));
  }

  get descriptor(): number {
    return this.#socket.descriptor;
  }

  close(): void {
    this.#socket.close();
  }

  #messages({ set, change, elements }: ElementChange): NetlinkMessage[] {
    const messages: NetlinkMessage[] = [];
    for (let start = 0; start < elements.length; start += elementsInMessage) {
      const listed = elements.slice(start, start + elementsInMessage).map(encodeElement);
      messages.push({
        name: `${change} ${set}`,
        type: (subsystem << 8) | (change === "add" ? message.newElements : message.deleteElements),
        flags: change === "add" ? messageFlag.create : 0,
        body: Buffer.concat([
          header(family.inet, 0),
          attribute(1, text(this.#name)),
          attribute(2, text(set)),
          nested(3, ...listed),
        ]),
      });
    }
    return messages;
  }
}

function encodeElement({ key, chain }: SetElement): Buffer {
  const parts = [nested(1, attribute(1, key))];
  if (chain !== undefined) {
    const code = Buffer.alloc(4);
    code.writeInt32BE(jumpVerdict);
    parts.push(nested(2, nested(2, attribute(1, code), attribute(2, text(chain)))));
  }
  return nested(1, ...parts);
}

function marker(which: "begin" | "end"): NetlinkMessage {
  return {
    name: `transaction ${which}`,
    type: batch[which],
    flags: 0,
    body: header(family.unspecified, subsystem),
    silent: true,
  };
}

function header(familyNumber: number, resource: number): Buffer {
  return Buffer.from([familyNumber, 0, resource >> 8, resource & 0xff]);
}
