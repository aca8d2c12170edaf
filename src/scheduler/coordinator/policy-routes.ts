import type { WireServer } from "../../wire/server/server.ts";
import { checkRegistries } from "./policy-choice.ts";
import { type PolicyPushParts, pushPolicy, replacePolicy } from "./policy-push.ts";

export interface PolicyRouteParts extends PolicyPushParts {
  /** Milliseconds since the epoch. */
  readonly now: () => number;
}

/** The routes of named policies and of changing those of sandboxes. */
export function servePolicies(server: WireServer, parts: PolicyRouteParts): void {
  const { registry, policies, now } = parts;
  server.handle("listPolicies", async () => ({ items: policies.list() }));
  server.handle("listPolicyVersions", async ({ params }) => ({ items: policies.versions(params.name) }));
  server.handle("getPolicy", async ({ params, query }) => policies.get(params.name, query.version));
  server.handle("setPolicy", async ({ params, body }) => {
    checkRegistries(body.policy, registry.all());
    return policies.set(params.name, body.policy, body.expectedVersion, now());
  });
  server.handle("removePolicy", async ({ params, query }) => policies.remove(params.name, query.version));
  server.handle("pushPolicy", async ({ body, signal }) => pushPolicy(parts, body, signal));
  server.handle("setSandboxPolicy", async ({ params, body, signal }) =>
    replacePolicy(parts, params.ref, body, signal),
  );
}
