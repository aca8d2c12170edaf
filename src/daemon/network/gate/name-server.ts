import { isIP } from "node:net";

export interface NameServer {
  readonly address: string;
  readonly port: number;
}

const dnsPort = 53;

/** `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`; undefined for what is none. */
export function parseNameServer(text: string): NameServer | undefined {
  if (isIP(text.replace(/%.*/, "")) !== 0) return { address: text, port: dnsPort };
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([\d.]+)):(\d{1,5})$/.exec(text) ?? [];
  const address = bracketed ?? plain ?? "";
  const number = Number(port);
  return isIP(address) !== 0 && number >= 1 && number <= 65_535 ? { address, port: number } : undefined;
}
