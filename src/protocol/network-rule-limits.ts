/** Of one policy. */
export const maxNetworkRules = 10_000;

/** A DNS label; names with dots are domains. */
export const registryName = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Names of policies that nobody has to make, and nobody can. */
export const builtinPolicies = { open: "open", none: "none" } as const;
