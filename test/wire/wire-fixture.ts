import { mkdtemp, rm } from "node:fs/promises";
import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import type { Problem } from "../../src/protocol/problem.ts";
import { parseAddress } from "../../src/wire/address.ts";
import { HttpClient } from "../../src/wire/client/http-client.ts";
import { WireServer } from "../../src/wire/server/server.ts";

export const token = "test-token-of-the-wire";
export const silent = pino({ level: process.env["DSEC_TEST_LOG"] ?? "silent" });

/** A directory that is gone after the test. */
export async function temporaryDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-wire-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** A server without routes of its own; closed after the test. */
export function newServer(): WireServer {
  const server = new WireServer({ role: "daemon", version: "1.2.3", token, log: silent });
  onTestFinished(async () => server.close());
  return server;
}

export function newClient(address: string, given: string = token): HttpClient {
  const client = new HttpClient({ address, token: given, peer: "node" });
  onTestFinished(() => client.close());
  return client;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** One request on a connection of its own, byte for byte as given. */
export function send(
  address: string,
  method: string,
  path: string,
  options: { body?: string; headers?: OutgoingHttpHeaders; anonymous?: boolean } = {},
): Promise<Answer> {
  const target = parseAddress(address);
  const headers = {
    ...(options.anonymous === true ? {} : { authorization: `Bearer ${token}` }),
    ...(options.body === undefined ? {} : { "content-type": "application/json" }),
    ...options.headers,
  };
  const where =
    target.kind === "unix" ? { socketPath: target.path } : { host: target.host, port: target.port };
  return new Promise((resolve, reject) => {
    const outgoing = request({ ...where, method, path, headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (text += chunk));
      response.on("end", () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text }),
      );
      response.on("error", reject);
    });
    outgoing.on("error", reject);
    outgoing.end(options.body);
  });
}

export function problemOf({ text }: Answer): Problem {
  return JSON.parse(text) as Problem;
}
