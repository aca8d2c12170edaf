import { z } from "zod";
import { NetworkProtocol } from "./network-policy.ts";

/**
 * What decided: a rule by its number in the policy and its text; the policy's default; or one of the address ranges that only an
 * allow rule for an address block within them opens.
 */
export const DecidedBy = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("rule"), index: z.int(), text: z.string() }),
  z.object({ kind: z.literal("default") }),
  z.object({
    kind: z.literal("protected"),
    range: z.enum([
      "node",
      "sandboxes",
      "link-local",
      "metadata",
      "multicast",
      "loopback",
      "reserved",
      "translated",
    ]),
  }),
  /** What a rule could not be applied to, because it cannot be checked: see `reason`. */
  z.object({
    kind: z.literal("unchecked"),
    reason: z.enum([
      /** A TLS connection without a server name. */
      "no_server_name",
      /** The server name is encrypted (ECH). */
      "encrypted_server_name",
      /** Neither TLS nor HTTP, on a connection that is allowed by name only. */
      "no_name",
      /** Server name or Host is another than the one allowed, or they differ. */
      "name_mismatch",
      /** The node's resolver did not give this address for the name, or its answer has expired. */
      "address_not_resolved",
      /** Another source address than the sandbox's own. */
      "spoofed_source",
      /** A packet that says by which way it is to go. */
      "source_route",
      /** IPv6, which sandboxes do not have. */
      "ipv6",
      /** A packet or message that cannot be read. */
      "malformed",
    ]),
  }),
  /** Allowed, but more than a sandbox may have: `flows` are connections that its node keeps track of, and how quickly new ones begin. */
  z.object({ kind: z.literal("limit"), limit: z.enum(["flows"]) }),
]);
export type DecidedBy = z.infer<typeof DecidedBy>;

export const NetworkVerdict = z.object({ allowed: z.boolean(), by: DecidedBy });
export type NetworkVerdict = z.infer<typeof NetworkVerdict>;

/** What would be connected to: `host` is a name, an IPv4 address or an IPv6 address without brackets. */
export const NetworkProbe = z.strictObject({
  host: z.string().min(1).max(254),
  port: z.int().min(1).max(65_535).optional(),
  protocol: NetworkProtocol.default("tcp"),
});
export type NetworkProbe = z.infer<typeof NetworkProbe>;
export type NetworkProbeInput = z.input<typeof NetworkProbe>;

export const NetworkProbeResult = z.object({
  /** Whether at least one address can be reached. */
  allowed: z.boolean(),
  /** Of the name itself; absent where an address was asked for. */
  name: NetworkVerdict.optional(),
  /** Of each address the name has, or of the one asked for. Empty where the name is refused or not resolved. */
  addresses: z.array(NetworkVerdict.extend({ address: z.string() })),
  /** Why there are no addresses, though the name is allowed. */
  unresolved: z.string().optional(),
});
export type NetworkProbeResult = z.infer<typeof NetworkProbeResult>;

/** One line of `dsec policy log`. Refusals all; of what is allowed, at least the first of its kind in a while. */
export const NetworkDecision = z.object({
  /** Rises by one with each decision of the sandbox; a gap is what was lost to the limit. */
  sequence: z.int(),
  /** Milliseconds since the epoch. */
  time: z.number(),
  sandbox: z.string(),
  /** `query`: the name was asked for; `connect`: a packet was sent; `name`: the TLS server name or Host was read; `cut`: an open connection was ended by a change. */
  stage: z.enum(["query", "connect", "name", "cut"]),
  allowed: z.boolean(),
  by: DecidedBy,
  protocol: NetworkProtocol.or(z.literal("other")),
  name: z.string().optional(),
  address: z.string().optional(),
  port: z.int().optional(),
  /** How many alike this line stands for. */
  count: z.int(),
});
export type NetworkDecision = z.infer<typeof NetworkDecision>;

/** Of one sandbox, since it was made or its daemon started. */
export const NetworkCounters = z.object({
  /** Connections that were let through by what they say of their name. What is allowed by its address alone passes in the kernel, uncounted. */
  allowed: z.int(),
  /**
   * Attempts: a connection that its client tries again counts again, as does each packet of a protocol without connections. Of
   * those that the kernel refuses, 20 a second (60 at once) are seen: a scan is more than its count.
   */
  refused: z.int(),
  queriesAnswered: z.int(),
  queriesRefused: z.int(),
  /** Connections ended by changes of the policy. */
  cut: z.int(),
  bytesSent: z.number(),
  bytesReceived: z.number(),
});
export type NetworkCounters = z.infer<typeof NetworkCounters>;
