import { DSecError } from "../../protocol/errors.ts";
import type { WireServer } from "../../wire/server/server.ts";
import type { Audit } from "../audit/audit.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";

export interface AuditRouteParts {
  readonly name: string;
  readonly sandboxes: Sandboxes;
  readonly audit: Audit | undefined;
}

/** The route about what processes in sandboxes did. */
export function serveAudit(server: WireServer, { name, sandboxes, audit }: AuditRouteParts): void {
  server.handle("audit", async ({ params, query, signal }) => {
    const entry = sandboxes.find(params.ref);
    await entry.adoption;
    if (audit === undefined)
      throw new DSecError("audit_unavailable", `node ${name} does not audit: it was started without --audit`);
    if (isUnseen(entry, audit))
      throw new DSecError(
        "audit_unavailable",
        `what ${entry.record.engine ?? entry.record.spec.backend} runs in ${entry.id} cannot be seen by its node`,
      );
    return audit.read(entry.id, { since: query.since, follow: query.follow }, signal);
  });
}

/** Of one that starts or has ended nobody can say so: it may have been seen. */
function isUnseen({ id, record }: SandboxEntry, audit: Audit): boolean {
  return (record.state === "running" || record.state === "paused") && !audit.watches(id);
}
