import { DSecError } from "../protocol/errors.ts";
import type { NodeLayer } from "../protocol/layer.ts";
import type { Context } from "./verb.ts";

/** As many as one request takes. */
const mostDigests = 4096;

/**
 * Lets the fleet's nodes unmount those of `digests` that they only keep for the next sandbox.
 *
 * @returns those in use, as far as nodes answer; undefined where no fleet does
 */
export async function releaseIdleLayers(
  { client }: Context,
  digests: readonly string[],
): Promise<readonly NodeLayer[] | undefined> {
  const used: NodeLayer[] = [];
  try {
    const fleet = await client();
    for (let first = 0; first < digests.length; first += mostDigests) {
      const { items } = await fleet.releaseLayers(digests.slice(first, first + mostDigests));
      used.push(...items);
    }
    return used;
  } catch (error) {
    if (error instanceof DSecError) return undefined;
    throw error;
  }
}
