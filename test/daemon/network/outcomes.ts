/** What tests of the network expect to come of an attempt, and to stand in the sandbox's log. */
import { expect, vi } from "vitest";
import type { DecidedBy, NetworkDecision } from "../../../src/protocol/network-decision.ts";
import type { Guest } from "./guest.ts";

/** Refused by the kernel: the second where more was refused in a second than it explains. */
export const refused = { error: expect.stringMatching(/^(?:EHOSTUNREACH|ECONNREFUSED)$/) };

/** Refused by the proxy, once it had read what for. */
export const broken = { error: expect.stringMatching(/^(?:EPROTO|ECONNRESET|ERR_SSL_.*ACCESS_DENIED)$/) };

export const answered = { text: expect.stringContaining("200 OK") };

/** A line about what cannot be checked. */
export function unchecked(
  reason: Extract<DecidedBy, { kind: "unchecked" }>["reason"],
): Pick<NetworkDecision, "allowed" | "by"> {
  return { allowed: false, by: { kind: "unchecked", reason } };
}

/** Waits for a line of the sandbox's log. */
export async function logged(guest: Guest, decision: Partial<NetworkDecision>): Promise<void> {
  await vi.waitFor(
    async () => expect(await guest.decisions()).toContainEqual(expect.objectContaining(decision)),
    { timeout: 5000 },
  );
}
