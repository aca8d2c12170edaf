import { Agent as HttpAgent, type IncomingMessage, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { createGunzip } from "node:zlib";
import { DSecError } from "../../../../protocol/errors.ts";
import { matchesDomain } from "../registry.ts";

export interface UpstreamOptions {
  /** Base URL of the registry, ending in `/`. May hold a user and password. */
  readonly base: string;
  /** Where files of the registry may lie beside the base's own host: names, exact or `*.example.org`. */
  readonly domains: readonly string[];
  /** Certificates to trust, PEM; Node's own without it. */
  readonly ca?: readonly string[] | undefined;
}

/** Connections to one host. */
const maxSockets = 32;
const maxRedirects = 5;
/** Milliseconds without a byte after which a request is given up. */
const stallMs = 30_000;

/** Answers other than 200 and 304. */
export class UpstreamStatus extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`the registry answered ${status}`);
    this.status = status;
  }
}

/** The registry behind a mirror. It is asked for nothing but what lies where the registry's name leads. */
export class Upstream {
  readonly base: URL;
  readonly #domains: readonly string[];
  readonly #authorization: string | undefined;
  readonly #agents: { readonly http: HttpAgent; readonly https: HttpsAgent };

  constructor({ base, domains, ca }: UpstreamOptions) {
    const url = new URL(base);
    this.#authorization =
      url.username === ""
        ? undefined
        : `Basic ${Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`).toString("base64")}`;
    url.username = "";
    url.password = "";
    this.base = url;
    this.#domains = domains;
    const pool = { keepAlive: true, maxSockets, proxyEnv: process.env };
    this.#agents = {
      http: new HttpAgent(pool),
      https: new HttpsAgent({ ...pool, ...(ca !== undefined && { ca: [...ca] }) }),
    };
  }

  /** One that leads elsewhere is taken as a path of the registry's own host. */
  nearest(url: URL): URL {
    return this.#leadsTo(url) ? url : new URL(`${url.pathname}${url.search}`, this.base);
  }

  /**
   * Opens a file for reading.
   * @throws UpstreamStatus; DSecError `connection_lost`, `forbidden` where it is led astray
   */
  async open(url: URL, headers: Readonly<Record<string, string>> = {}): Promise<IncomingMessage> {
    let next = url;
    for (let hop = 0; hop <= maxRedirects; hop += 1) {
      if (!this.#leadsTo(next))
        throw new DSecError(
          "forbidden",
          `the registry leads on to ${next.hostname}, which its name does not stand for: add it to the registry's domains`,
        );
      const answer = await this.#ask(next, headers);
      const { statusCode: status = 0 } = answer;
      if (status === 200 || status === 304) return answer;
      answer.resume();
      const location = answer.headers.location;
      if (![301, 302, 303, 307, 308].includes(status) || location === undefined)
        throw new UpstreamStatus(status);
      next = new URL(location, next);
    }
    throw new DSecError("protocol_error", "the registry leads in circles");
  }

  /**
   * Reads a whole document.
   * @param known entity tag of what is there already
   * @returns undefined where that still holds
   * @throws as {@link open}; DSecError `body_too_large`
   */
  async read(
    url: URL,
    accept: string,
    maxBytes: number,
    known: string | undefined,
  ): Promise<{ readonly body: Buffer; readonly etag: string | undefined } | undefined> {
    const answer = await this.open(url, {
      accept,
      "accept-encoding": "gzip",
      ...(known !== undefined && { "if-none-match": known }),
    });
    if (answer.statusCode === 304) {
      answer.resume();
      return undefined;
    }
    const zipped = answer.headers["content-encoding"] === "gzip";
    const source = zipped ? answer.pipe(createGunzip()) : answer;
    answer.on("error", (error) => source.destroy(error));
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of source as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        if (bytes > maxBytes)
          throw new DSecError("body_too_large", `the registry's document is longer than ${maxBytes} bytes`);
        chunks.push(chunk);
      }
    } catch (cause) {
      if (cause instanceof DSecError) throw cause;
      throw new DSecError("connection_lost", "the registry's answer broke off", { cause });
    } finally {
      answer.destroy();
    }
    return { body: Buffer.concat(chunks), etag: answer.headers.etag };
  }

  close(): void {
    this.#agents.http.destroy();
    this.#agents.https.destroy();
  }

  #ask(url: URL, headers: Readonly<Record<string, string>>): Promise<IncomingMessage> {
    const authorized = this.#authorization !== undefined && url.origin === this.base.origin;
    const all = {
      "user-agent": "dsec",
      ...headers,
      ...(authorized && { authorization: this.#authorization }),
    };
    const isHttps = url.protocol === "https:";
    const request = isHttps
      ? httpsRequest(url, { agent: this.#agents.https, headers: all })
      : httpRequest(url, { agent: this.#agents.http, headers: all });
    return new Promise((resolve, reject) => {
      request.setTimeout(stallMs, () =>
        request.destroy(new Error(`nothing was heard for ${stallMs / 1000} s`)),
      );
      request.on("response", resolve);
      request.on("error", (cause) =>
        reject(new DSecError("connection_lost", `${url.host} cannot be reached`, { cause })),
      );
      request.end();
    });
  }

  #leadsTo(url: URL): boolean {
    if (url.protocol !== "https:" && url.protocol !== this.base.protocol) return false;
    if (url.host === this.base.host) return true;
    return this.#domains.some((domain) => matchesDomain(domain, url.hostname));
  }
}
