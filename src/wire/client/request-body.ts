import type { ClientRequest } from "node:http";
import type { Readable } from "node:stream";

/** Bytes of a body that wait here for a slow peer. */
const bufferBytes = 262_144;

/**
 * Sends a body of any length. A peer may answer before all of it was sent: then the rest passes by unread, and the body's own
 * connection, where it has one, stays to carry that answer.
 */
export function pipeBody(
  body: Readable,
  outgoing: ClientRequest,
  trailers: (() => Readonly<Record<string, string>>) | undefined,
): void {
  // more than pipe would let wait, so that the two ends need not take turns
  body.on("data", (chunk: Buffer) => {
    if (outgoing.destroyed) return;
    outgoing.write(chunk);
    if (outgoing.writableLength >= bufferBytes) body.pause();
  });
  outgoing.on("drain", () => body.resume());
  body.once("end", () => {
    if (trailers !== undefined) outgoing.addTrailers(trailers());
    outgoing.end();
  });
  body.once("error", (error) => outgoing.destroy(error));
  body.once("close", () => {
    if (!body.readableEnded) outgoing.destroy(new Error("the body broke off before its end"));
  });
  outgoing.once("response", (answer) => {
    // nothing is lost any more, and nobody would tell when the body's sender went away: its own request has been answered
    answer.once("end", () => {
      if (!body.readableEnded) outgoing.destroy();
    });
  });
  outgoing.once("close", () => {
    body.resume();
  });
}
