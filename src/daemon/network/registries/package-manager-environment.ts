import type { NetworkPolicy } from "../../../protocol/network-policy.ts";

/** Where a registry is to be had that is not where its package managers look by themselves. */
export interface RegistryHome {
  readonly name: string;
  /** Base URL, ending in `/`. */
  readonly url: string;
}

type Environment = Readonly<Record<string, string>>;

/** Variables by which package managers are told. */
const variables: Readonly<Record<string, (url: URL) => Environment>> = {
  npm: (url) => ({
    npm_config_registry: url.href,
    YARN_NPM_REGISTRY_SERVER: url.href.replace(/\/$/, ""),
    ...(url.protocol === "http:" && { YARN_UNSAFE_HTTP_WHITELIST: url.hostname }),
  }),
  pypi: (url) => ({
    PIP_INDEX_URL: url.href,
    UV_DEFAULT_INDEX: url.href,
    ...(url.protocol === "http:" && { PIP_TRUSTED_HOST: url.host }),
  }),
};

/** What sends the package managers of a sandbox where its policy lets them: only for registries that it allows by name. */
export function packageManagerEnvironment(
  homes: readonly RegistryHome[],
  policy: NetworkPolicy,
): Environment {
  const named = (action: "allow" | "deny", name: string): boolean =>
    policy.rules.some(
      (rule) => rule.action === action && rule.target.kind === "registry" && rule.target.name === name,
    );
  const allowed = homes.filter(({ name }) => named("allow", name) && !named("deny", name));
  return Object.assign(
    {},
    ...allowed.map(({ name, url }) => variables[name]?.(new URL(url)) ?? {}),
  ) as Environment;
}
