import type { WireServer } from "../../wire/server/server.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import type { NodeSessions } from "../sessions/node-sessions.ts";

export interface SessionRouteParts {
  readonly sandboxes: Sandboxes;
  readonly sessions: NodeSessions;
}

/** The routes that show and end sessions; they begin with their first command. */
export function serveSessions(server: WireServer, { sandboxes, sessions }: SessionRouteParts): void {
  server.handle("listSessions", async ({ params }) => {
    const entry = sandboxes.find(params.ref);
    return { items: entry.record.state === "running" ? sessions.of(entry).list() : [] };
  });
  server.handle("endSession", async ({ params }) => {
    const entry = sandboxes.find(params.ref);
    if (entry.adoption !== undefined) await entry.adoption;
    entry.requireRunning();
    await sessions.of(entry).end(params.name);
  });
}
