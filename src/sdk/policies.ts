import type { NamedPolicy, NamedPolicyList, NamedPolicySummary } from "../protocol/named-policy.ts";
import type { NetworkPolicyInput } from "../protocol/network-policy.ts";
import type { PolicyTexts } from "../protocol/policy-texts.ts";
import type { PolicyAudience, PolicyPushResult } from "../protocol/policy-push.ts";
import type { HttpClient } from "../wire/client/http-client.ts";
import type { CallOptions } from "./sandbox.ts";

/** Rules of a policy: by their texts, or as the wire has them. */
export type PolicyRules = PolicyTexts | NetworkPolicyInput;

/** A named policy (`name`, `name@version`), `open`, `none`, or rules. */
export type PolicyLike = string | PolicyRules;

/** What the wire takes for a policy. @throws DSecError `invalid_argument` for a rule that cannot be read */
async function wirePolicy(policy: PolicyRules): Promise<NetworkPolicyInput> {
  if (!("allow" in policy || "deny" in policy)) return policy;
  // what reads addresses is loaded by who has rules to read
  const { policyFromTexts } = await import("../protocol/policy-texts.ts");
  return policyFromTexts(policy);
}

/** As {@link wirePolicy}; names stay names. */
export async function wireChoice(policy: PolicyLike): Promise<string | NetworkPolicyInput> {
  return typeof policy === "string" ? policy : wirePolicy(policy);
}

/** Named network policies of a fleet. Versions never change; sandboxes keep what they have until they are pushed another. */
export class Policies {
  readonly #http: HttpClient;

  constructor(http: HttpClient) {
    this.#http = http;
  }

  /** The newest version of each. */
  async list(options: CallOptions = {}): Promise<NamedPolicySummary[]> {
    return (await this.#http.json<NamedPolicyList>("listPolicies", options)).items;
  }

  /** The newest first. @throws DSecError `not_found` */
  async versions(name: string, options: CallOptions = {}): Promise<NamedPolicySummary[]> {
    const params = { name };
    return (await this.#http.json<NamedPolicyList>("listPolicyVersions", { params, ...options })).items;
  }

  /** @param options.version the newest unless given @throws DSecError `not_found` */
  async get(name: string, options: CallOptions & { readonly version?: number } = {}): Promise<NamedPolicy> {
    const { version, signal } = options;
    return this.#http.json<NamedPolicy>("getPolicy", { params: { name }, query: { version }, signal });
  }

  /** Makes version 1. @throws DSecError `conflict` when there is one of that name, `unknown_registry` */
  async create(name: string, policy: PolicyRules, options: CallOptions = {}): Promise<NamedPolicy> {
    return this.#put(name, policy, 0, options.signal);
  }

  /**
   * Makes a version more; the rules of the newest again make none.
   * @param options.expectedVersion the newest there must be @throws DSecError `not_found`, `conflict`, `unknown_registry`
   */
  async set(
    name: string,
    policy: PolicyRules,
    options: CallOptions & { readonly expectedVersion?: number } = {},
  ): Promise<NamedPolicy> {
    return this.#put(name, policy, options.expectedVersion, options.signal);
  }

  /** Forgets it, or one version. Sandboxes that have it keep it. @throws DSecError `not_found` */
  async remove(name: string, options: CallOptions & { readonly version?: number } = {}): Promise<void> {
    const { version, signal } = options;
    await this.#http.json("removePolicy", { params: { name }, query: { version }, signal });
  }

  /**
   * Replaces the policy of sandboxes, each as one step. What failed for some stands in the answer.
   * @param to a filter, or references
   * @throws DSecError `not_found` for the policy, `unknown_registry`, `node_unreachable`
   */
  async push(
    policy: PolicyLike,
    to: PolicyAudience,
    options: CallOptions & { readonly dryRun?: boolean } = {},
  ): Promise<PolicyPushResult> {
    const { dryRun = false, signal } = options;
    const body = { policy: await wireChoice(policy), to, dryRun };
    return this.#http.json<PolicyPushResult>("pushPolicy", { body, signal, idempotent: true });
  }

  /** Not sent again by itself: the second time would find the version that the first has made. */
  async #put(
    name: string,
    policy: PolicyRules,
    expectedVersion: number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<NamedPolicy> {
    const body = {
      policy: await wirePolicy(policy),
      ...(expectedVersion === undefined ? {} : { expectedVersion }),
    };
    const idempotent = expectedVersion === undefined;
    return this.#http.json<NamedPolicy>("setPolicy", { params: { name }, body, signal, idempotent });
  }
}
