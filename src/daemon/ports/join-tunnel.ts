import type { Duplex } from "node:stream";
import { DSecError } from "../../protocol/errors.ts";
import type { TunnelStream } from "../../wire/tunnel-stream.ts";

/** Each end's bytes, its ends and its failure become the other's, no faster than the other takes them. */
export function joinTunnel(tunnel: TunnelStream, service: Duplex): void {
  tunnel.pipe(service);
  service.pipe(tunnel);
  service.on("error", (error) => tunnel.destroy(error instanceof DSecError ? error : broken(error)));
  service.on("close", () => {
    if (!service.readableEnded) tunnel.destroy(broken());
  });
  tunnel.on("error", () => service.destroy());
  tunnel.on("close", () => {
    // a tunnel that ended in order may have bytes that the agent has still to hand on
    if (!tunnel.readableEnded || !tunnel.writableFinished) service.destroy();
  });
}

function broken(cause?: Error): DSecError {
  const options = cause === undefined ? {} : { cause };
  return new DSecError("connection_lost", "the connection to the service broke", options);
}
