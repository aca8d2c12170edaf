import type { Socket } from "node:net";
import { canonicalName } from "../../../protocol/domain-name.ts";
import type { DecidedBy, NetworkVerdict } from "../../../protocol/network-decision.ts";
import { judge } from "../policy/judge.ts";
import type { GatedSandbox } from "./gated-sandbox.ts";

/** Characters of a name that are logged: no name is longer, but what a client says may be. */
const longestName = 255;

type Unchecked = Extract<DecidedBy, { kind: "unchecked" }>["reason"];

export function unchecked(reason: Unchecked): NetworkVerdict {
  return { allowed: false, by: { kind: "unchecked", reason } };
}

export const tooManyFlows: NetworkVerdict = { allowed: false, by: { kind: "limit", limit: "flows" } };

/** A connection of a sandbox that goes through the proxy. */
export class Flow {
  readonly sandbox: GatedSandbox;
  readonly client: Socket;
  /** Where the sandbox connected to. */
  readonly address: string;
  readonly port: number;
  /** What it was last allowed as; undefined where its address alone was enough, or nothing was allowed yet. */
  name: string | undefined;
  #isJudged = false;
  readonly #ends = new Set<{ destroy: () => void }>();

  constructor(sandbox: GatedSandbox, client: Socket, address: string, port: number) {
    this.sandbox = sandbox;
    this.client = client;
    this.address = address;
    this.port = port;
  }

  /** Whether it may go on by its address, whatever it says. */
  judgeAddress(): NetworkVerdict {
    return judge(this.sandbox.policy, { address: this.address, port: this.port, protocol: "tcp" });
  }

  /**
   * Whether it may go on as what its client says that it is.
   *
   * @param text the TLS server name, or the name in Host
   * @param now milliseconds
   */
  judgeName(text: string, now: number): NetworkVerdict {
    const { sandbox, address, port } = this;
    const name = canonicalName(text);
    if (name === undefined) {
      const verdict = this.judgeAddress();
      return verdict.allowed ? verdict : unchecked("no_name");
    }
    const byAddress = this.judgeAddress();
    const verdict = judge(sandbox.policy, { address, port, protocol: "tcp", name });
    if (!verdict.allowed || byAddress.allowed) return verdict;
    const names = sandbox.pins.namesOf(address, now);
    if (names.includes(name)) return verdict;
    return unchecked(names.length > 0 ? "name_mismatch" : "address_not_resolved");
  }

  /** It goes on. @param name by which; undefined where the address alone is enough */
  allowAs(name: string | undefined): void {
    this.name = name;
    this.#isJudged = true;
  }

  /**
   * Whether it still may go on after a change of the policy: its name was allowed for its address when it began, and does not expire.
   * Undefined while it has not been judged at all.
   */
  judgeAgain(): NetworkVerdict | undefined {
    const { sandbox, address, port, name } = this;
    return this.#isJudged ? judge(sandbox.policy, { address, port, protocol: "tcp", name }) : undefined;
  }

  /** What ends with it. */
  own(end: { destroy: () => void }): void {
    this.#ends.add(end);
  }

  /** Ends both sides at once; the client learns it by a reset. */
  cut(): void {
    this.client.resetAndDestroy();
    for (const end of this.#ends) end.destroy();
  }

  decided(stage: "connect" | "name" | "cut", { allowed, by }: NetworkVerdict, name = this.name): void {
    const { address, port } = this;
    this.sandbox.decided({
      stage,
      allowed,
      by,
      protocol: "tcp",
      address,
      port,
      ...(name !== undefined && { name: name.slice(0, longestName) }),
    });
  }
}
