import { once } from "node:events";
import { type IncomingMessage, request as httpRequest, type RequestOptions } from "node:http";
import type { Problem } from "../../src/protocol/problem.ts";
import { httpService } from "./port-fleet.ts";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly text: string;
}

/** One request on a connection of its own. */
export async function send(url: string, options: RequestOptions = {}, body?: string): Promise<Answer> {
  const outgoing = httpRequest(url, { agent: false, ...options });
  outgoing.end(body);
  const [response] = (await once(outgoing, "response")) as [IncomingMessage];
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += String(chunk);
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

export function codeOf({ text }: Answer): string {
  return (JSON.parse(text) as Problem).code;
}

/** A service that answers with what it was asked. */
export async function mirror() {
  return httpService((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (chunk: string) => (body += chunk));
    request.on("end", () => {
      const { method, url, headers } = request;
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ method, url, headers, body }));
    });
  });
}

export interface Mirrored {
  readonly method: string;
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly body: string;
}

export function mirrored({ text }: Answer): Mirrored {
  return JSON.parse(text) as Mirrored;
}
