import { DSecError } from "../../protocol/errors.ts";
import { digestOfLongPolicy } from "../../wire/policy-digest.ts";
import type { GivenPolicy } from "../../protocol/policy-in-force.ts";
import type { Placement } from "../../protocol/sandbox.ts";

type PlacedPolicy = Pick<Placement, "networkPolicy" | "knownPolicy">;

const mostKept = 256;

/** Long policies that a node has been sent, by digest: from then on they are named. It may have forgotten them. */
export class SentPolicies {
  readonly #sent = new Set<string>();

  /** Sends a placement with a policy, in whichever way the node takes it. */
  async send<T>(given: GivenPolicy | undefined, place: (policy: PlacedPolicy) => Promise<T>): Promise<T> {
    const digest = given && digestOfLongPolicy(given.policy);
    if (given !== undefined && digest !== undefined && this.#sent.has(digest)) {
      const { origin } = given;
      try {
        return await place({ knownPolicy: { digest, ...(origin !== undefined && { origin }) } });
      } catch (error) {
        if (!(error instanceof DSecError) || error.code !== "unknown_policy") throw error;
        this.#sent.delete(digest);
      }
    }
    const answer = await place(given === undefined ? {} : { networkPolicy: given });
    if (digest !== undefined) this.#add(digest);
    return answer;
  }

  #add(digest: string): void {
    this.#sent.delete(digest);
    this.#sent.add(digest);
    const [oldest] = this.#sent;
    if (this.#sent.size > mostKept && oldest !== undefined) this.#sent.delete(oldest);
  }
}
