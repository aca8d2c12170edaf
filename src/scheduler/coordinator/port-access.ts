import type { IncomingMessage } from "node:http";
import { DSecError } from "../../protocol/errors.ts";
import { portTokenHeader } from "../../protocol/tunnel.ts";
import type { Authenticator } from "../../wire/server/authentication.ts";
import { PortTokens } from "./port-tokens.ts";

const scheme = /^bearer +/i;

/** Who may speak to a port over the HTTP route: bearers of the fleet's token, and of one for that port. */
export class PortAccess {
  readonly #authenticate: Authenticator;
  readonly #tokens: PortTokens;

  constructor(authenticate: Authenticator, tokens: PortTokens) {
    this.#authenticate = authenticate;
    this.#tokens = tokens;
  }

  /**
   * The credential is in the token header, in the query, or in `authorization`, in this order; what is not used as one, and is none of
   * ours, belongs to the service.
   * @param fromQuery credentials that the query carried
   * @returns whether the service may see `authorization`
   * @throws DSecError `unauthenticated`, `forbidden`
   */
  check(
    { headers }: IncomingMessage,
    target: { readonly ref: string; readonly port: number },
    fromQuery: readonly string[],
  ): { readonly passAuthorization: boolean } {
    const fromHeader = headers[portTokenHeader];
    const given = [...(fromHeader === undefined ? [] : [String(fromHeader)]), ...fromQuery];
    const [token, ...more] = given;
    if (more.length > 0) throw new DSecError("unauthenticated", "the request carries more than one token");
    const bearer = headers.authorization?.replace(scheme, "") ?? "";
    if (token === undefined) {
      if (PortTokens.isOne(bearer)) this.#tokens.check(bearer, target.ref, target.port);
      else this.#authenticate({ headers });
      return { passAuthorization: false };
    }
    if (PortTokens.isOne(token)) this.#tokens.check(token, target.ref, target.port);
    else if (fromQuery.length > 0)
      throw new DSecError("unauthenticated", "only a token of a port may stand in an address");
    else this.#authenticate({ headers: { authorization: `Bearer ${token}` } });
    return { passAuthorization: !PortTokens.isOne(bearer) && !this.#isFleets(headers) };
  }

  /** A client that sends the fleet's token by habit must not hand it to a service. */
  #isFleets(headers: IncomingMessage["headers"]): boolean {
    try {
      this.#authenticate({ headers });
      return true;
    } catch {
      return false;
    }
  }
}
