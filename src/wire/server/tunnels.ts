import { DSecError } from "../../protocol/errors.ts";
import { tunnelUpgrade } from "../../protocol/tunnel.ts";
import { TunnelStream } from "../tunnel-stream.ts";
import type { Upgrade } from "./upgrades.ts";

/** Refuses an upgrade to anything else. @throws DSecError `invalid_argument` */
export function checkTunnel({ request }: Upgrade): void {
  if (request.headers.upgrade?.toLowerCase() !== tunnelUpgrade)
    throw new DSecError("invalid_argument", `a port is reached by an upgrade to ${tunnelUpgrade} only`);
}

/** Answers the upgrade; what is written from now on goes through the tunnel. */
export function acceptTunnel({ socket, head }: Upgrade): TunnelStream {
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: ${tunnelUpgrade}\r\n\r\n`,
  );
  return new TunnelStream(socket, "server", head);
}
