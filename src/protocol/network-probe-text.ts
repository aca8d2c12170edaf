import { DSecError } from "./errors.ts";
import type { NetworkProbeInput } from "./network-decision.ts";

/**
 * `example.com:443`, `192.0.2.1:53/udp`, `[2001:db8::1]:443`, a name or address alone.
 * @throws DSecError `invalid_argument`
 */
export function parseProbe(text: string): NetworkProbeInput {
  const {
    v6,
    host = v6,
    port,
    protocol,
  } = /^(?:\[(?<v6>[0-9a-f:.]+)\]|(?<host>[^:[\]/\s]+))(?::(?<port>\d{1,5}))?(?:\/(?<protocol>[a-z]+))?$/i.exec(
    text,
  )?.groups ?? {};
  const number = port === undefined ? undefined : Number(port);
  const known = protocol === undefined || protocol === "tcp" || protocol === "udp" || protocol === "icmp";
  if (host === undefined || !known || (number !== undefined && (number < 1 || number > 65_535)))
    throw new DSecError(
      "invalid_argument",
      `'${text}' is no destination: it must be like example.com:443, 192.0.2.1:53/udp or [2001:db8::1]:443`,
    );
  return {
    host,
    ...(number === undefined ? {} : { port: number }),
    ...(protocol === undefined ? {} : { protocol }),
  };
}
