import type { WireServer } from "../../wire/server/server.ts";
import type { Ports } from "../ports/ports.ts";

/** The route that leads to the sandboxes' ports. */
export function servePorts(server: WireServer, { ports }: { readonly ports: Ports }): void {
  server.handleUpgrade("port", async (upgrade) => ports.open(upgrade));
}
