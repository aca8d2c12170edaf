import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { DSecError } from "../../protocol/errors.ts";

/** What a token lets its bearer reach, until when. */
export interface PortGrant {
  /** Full id. */
  readonly sandbox: string;
  readonly port: number;
  /** Seconds since the epoch. */
  readonly expires: number;
}

const prefix = "dsecport";

/**
 * Credentials for one port of one sandbox: nothing is stored, a token is its grant and a MAC of it. Whoever knows the coordinator's own
 * token can make them, so they end with it, and every coordinator that shares it accepts them.
 */
export class PortTokens {
  readonly #key: Buffer;
  readonly #now: () => number;

  /** @param secret the coordinator's own token @param now milliseconds since the epoch */
  constructor(secret: string, now: () => number) {
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "dsec tokens of ports, 1", 32));
    this.#now = now;
  }

  issue(grant: PortGrant): string {
    const content = `${prefix}.${grant.sandbox}.${grant.port}.${grant.expires}`;
    return `${content}.${this.#mac(content).toString("base64url")}`;
  }

  /** Whether it looks like a token of a port, whosever it is. */
  static isOne(text: string): boolean {
    return text.startsWith(`${prefix}.`);
  }

  /**
   * @throws DSecError `unauthenticated` when it is not ours or has expired, `forbidden` when it is for something else
   */
  check(token: string, sandbox: string, port: number): void {
    const [, ofSandbox = "", ofPort = "", expires = "", mac = ""] = token.split(".");
    const content = `${prefix}.${ofSandbox}.${ofPort}.${expires}`;
    const given = Buffer.from(mac, "base64url");
    const expected = this.#mac(content);
    if (
      token !== `${content}.${mac}` ||
      given.length !== expected.length ||
      !timingSafeEqual(given, expected)
    )
      throw new DSecError("unauthenticated", "the token is not one of this fleet");
    if (Number(expires) * 1000 <= this.#now())
      throw new DSecError("unauthenticated", "the token has expired");
    if (ofSandbox !== sandbox || ofPort !== String(port))
      throw new DSecError("forbidden", `the token is for port ${ofPort} of sandbox ${ofSandbox}`);
  }

  #mac(content: string): Buffer {
    return createHmac("sha256", this.#key).update(content).digest();
  }
}
