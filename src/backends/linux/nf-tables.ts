/** nf_tables: chains and elements of named sets and maps, changed in one transaction and without starting a program. */
import {
  attribute,
  messageFlag,
  type NetlinkMessage,
  netlinkProtocol,
  NetlinkSocket,
  text,
} from "./netlink-socket.ts";
import { elementsMessages, nfHeader, nfMarker, nfMessage, type SetElement } from "./nf-elements.ts";
import { type NfRule, RuleEncoder } from "./nf-rules.ts";

const message = { newChain: 3, deleteChain: 5, deleteRules: 8 } as const;
/** Of a transaction: some 100,000 elements. */
const mostBytes = 16 * 2 ** 20;

/** Elements to be added to or deleted from a set. A deleted one must be there; an added one may. */
export interface ElementChange {
  readonly set: string;
  readonly change: "add" | "delete";
  readonly elements: readonly SetElement[];
}

/** A chain to be made, with these rules alone though it is there already; or one to be deleted, to which nothing leads. */
export type ChainChange =
  | { readonly chain: string; readonly change: "add"; readonly rules: readonly NfRule[] }
  | { readonly chain: string; readonly change: "delete" };

/** Changes one table of the family inet. */
export class NfTable {
  readonly #name: string;
  readonly #socket = new NetlinkSocket(netlinkProtocol.netfilter);

  /** @throws LinuxError */
  constructor(name: string) {
    this.#name = name;
    this.#socket.reserve(mostBytes);
  }

  /** All of it or nothing, in this order, at one moment for every packet. @throws LinuxError */
  change(changes: readonly (ElementChange | ChainChange)[]): void {
    const encoder = new RuleEncoder(this.#name);
    const messages = changes.flatMap((change) =>
      "set" in change ? this.#elements(change) : this.#chain(change, encoder),
    );
    // One answer tells of all; errors are told in any case.
    const asked = messages.map((part, index) => ({ ...part, silent: index < messages.length - 1 }));
    if (asked.length > 0) this.#socket.request(nfMarker("begin"), ...asked, nfMarker("end"));
  }

  get descriptor(): number {
    return this.#socket.descriptor;
  }

  close(): void {
    this.#socket.close();
  }

  #elements({ set, change, elements }: ElementChange): NetlinkMessage[] {
    const into = [attribute(1, text(this.#name)), attribute(2, text(set))];
    return elementsMessages(`${change} ${set}`, change, into, elements);
  }

  #chain(change: ChainChange, encoder: RuleEncoder): NetlinkMessage[] {
    const { chain } = change;
    const body = (attributeOfName: number) =>
      Buffer.concat([nfHeader(), attribute(1, text(this.#name)), attribute(attributeOfName, text(chain))]);
    if (change.change === "delete") return [nfMessage(`delete ${chain}`, message.deleteChain, 0, body(3))];
    return [
      nfMessage(`add ${chain}`, message.newChain, messageFlag.create, body(3)),
      nfMessage(`empty ${chain}`, message.deleteRules, 0, body(2)),
      ...change.rules.flatMap((rule) => encoder.encode(chain, rule)),
    ];
  }
}
