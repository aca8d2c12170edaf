import type { ClientRequest } from "node:http";
import type { Readable } from "node:stream";

/**
 * Sends a body of any length. A peer may answer before all of it was sent: then the rest passes by unread, and the body's own
 * connection, where it has one, stays to carry that answer.
 */
export function pipeBody(
  body: Readable,
  outgoing: ClientRequest,
  trailers: (() => Readonly<Record<string, string>>) | undefined,
): void {
  body.pipe(outgoing, { end: false });
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
    body.unpipe(outgoing);
    body.resume();
  });
}
