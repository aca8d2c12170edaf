import type { WireServer } from "../../wire/server/server.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import type { PolicyChanges } from "../network/policy/policy-changes.ts";
import type { SandboxNetworks } from "../network/policy/sandbox-networks.ts";

export interface NetworkRouteParts {
  readonly sandboxes: Sandboxes;
  readonly networks: SandboxNetworks;
  readonly policyChanges: PolicyChanges;
}

/** The routes about what sandboxes may reach. */
export function serveNetworks(server: WireServer, parts: NetworkRouteParts): void {
  const { sandboxes, networks, policyChanges } = parts;
  const adopted = async (ref: string): Promise<SandboxEntry> => {
    const entry = sandboxes.find(ref);
    await entry.adoption;
    return entry;
  };
  server.handle("getSandboxPolicy", async ({ params }) => networks.policy(sandboxes.find(params.ref)));
  server.handle("applyPolicy", async ({ body }) => policyChanges.apply(body));
  server.handle("testNetwork", async ({ params, body, signal }) =>
    networks.test(await adopted(params.ref), body, signal),
  );
  server.handle("networkLog", async ({ params, query, signal }) =>
    networks.decisions(await adopted(params.ref), { since: query.since, follow: query.follow }, signal),
  );
}
