import { request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import { parseAddress } from "../../../src/wire/address.ts";
import { type TestDaemon, token } from "../daemon-fixture.ts";

export interface RawAnswer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly trailers: NodeJS.Dict<string>;
  readonly body: Buffer;
  /** Whether the whole of it came. */
  readonly complete: boolean;
}

/** A transfer below every client of ours: what a stranger with curl, or a broken client, would send. */
export class RawTransfer {
  readonly request: ClientRequest;
  readonly answer: Promise<RawAnswer>;

  constructor(
    daemon: TestDaemon,
    method: "GET" | "PUT",
    path: string,
    headers: Readonly<Record<string, string>> = {},
  ) {
    const address = parseAddress(daemon.running.address);
    if (address.kind !== "unix") throw new Error("the daemon of a test listens on a Unix socket");
    this.request = httpRequest({
      socketPath: address.path,
      method,
      path,
      headers: { ...headers, authorization: `Bearer ${token}` },
    });
    this.answer = new Promise((resolve, reject) => {
      this.request.on("error", reject);
      this.request.on("response", (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", () => undefined);
        response.on("close", () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            trailers: response.trailers,
            body: Buffer.concat(chunks),
            complete: response.complete,
          }),
        );
      });
    });
    this.answer.catch(() => undefined);
  }
}

export function filesPath(ref: string, query: Readonly<Record<string, string>>, route = "files"): string {
  return `/v1/sandboxes/${ref}/${route}?${new URLSearchParams(query).toString()}`;
}

export function codeOf(answer: RawAnswer): unknown {
  return (JSON.parse(answer.body.toString()) as { code?: unknown }).code;
}
