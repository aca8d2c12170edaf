/**
 * Rules as people write them: `npm`, `example.com`, `*.github.com:443`, `10.0.0.0/8:5432/tcp`, `[2001:db8::]/32`,
 * `[2001:db8::1]:8000-8999/udp`. A name without a dot is a registry; a domain of one label ends in a dot (`intranet.`).
 */
import { formatCidr, parseCidr } from "./cidr.ts";
import { canonicalDomain } from "./domain-name.ts";
import { DSecError } from "./errors.ts";
import type { NetworkProtocol, NetworkRule, NetworkTarget, PortRange } from "./network-policy.ts";
import { registryName } from "./network-rule-limits.ts";

const form =
  /^(?<target>\[[^\]]*\](?:\/[^:/]*)?|[^:[\]/]*(?:\/\d[^:/]*)?)(?::(?<ports>[^/:]*))?(?:\/(?<protocol>[a-z]+))?$/i;

/** @throws DSecError `invalid_argument` saying what is wrong with it */
export function parseRule(action: NetworkRule["action"], text: string): NetworkRule {
  const { target, ports, protocol } = form.exec(text)?.groups ?? {};
  if (target === undefined) throw notARule(text);
  const rule: NetworkRule = {
    action,
    target: parseTarget(target, text),
    ...(ports === undefined ? {} : { ports: parsePorts(ports, text) }),
    ...(protocol === undefined ? {} : { protocol: parseProtocol(protocol, text) }),
  };
  if (rule.protocol === "icmp" && (rule.ports !== undefined || rule.target.kind !== "cidr"))
    throw invalid(text, "icmp goes with addresses alone, as in 10.0.0.0/8/icmp");
  return rule;
}

/** As {@link parseRule} reads it, without the action. */
export function formatRule({
  target,
  ports,
  protocol,
}: Pick<NetworkRule, "target" | "ports" | "protocol">): string {
  const listed = ports?.map(({ from, to }) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
  return [
    formatTarget(target),
    listed === undefined ? "" : `:${listed}`,
    protocol === undefined ? "" : `/${protocol}`,
  ].join("");
}

function parseTarget(target: string, text: string): NetworkTarget {
  if (target.startsWith("[")) {
    const [, address = "", length = ""] = /^\[([^\]]*)\](.*)$/.exec(target) ?? [];
    const cidr = parseCidr(`${address}${length}`);
    if (!address.includes(":")) throw invalid(text, "brackets are for IPv6 addresses");
    return { kind: "cidr", cidr: formatCidr(cidr) };
  }
  if (/^[\d.]+(?:\/|$)/.test(target)) return { kind: "cidr", cidr: formatCidr(parseCidr(target)) };
  if (registryName.test(target)) return { kind: "registry", name: target };
  if (target.includes(".")) return { kind: "domain", domain: canonicalDomain(target) };
  throw notARule(text);
}

function formatTarget(target: NetworkTarget): string {
  if (target.kind === "registry") return target.name;
  if (target.kind === "domain") return target.domain.includes(".") ? target.domain : `${target.domain}.`;
  const [address = "", length] = target.cidr.split("/");
  const written = address.includes(":") ? `[${address}]` : address;
  return length === undefined ? written : `${written}/${length}`;
}

function parsePorts(list: string, text: string): PortRange[] {
  return list.split(",").map((part) => {
    const [, from = "", to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part) ?? [];
    const range = { from: Number(from), to: Number(to) };
    if (from === "" || range.from < 1 || range.to > 65_535 || range.from > range.to)
      throw invalid(text, `'${part}' is no port: ports are like 443, 8000-8999 or 80,443, from 1 to 65535`);
    return range;
  });
}

function parseProtocol(name: string, text: string): NetworkProtocol {
  const protocol = name.toLowerCase();
  if (protocol === "tcp" || protocol === "udp" || protocol === "icmp") return protocol;
  throw invalid(text, `'${name}' is no protocol: it must be tcp, udp or icmp`);
}

function notARule(text: string): DSecError {
  const address = text.split("/", 1)[0] ?? "";
  if (/^[0-9a-f:.]*:[0-9a-f:.]*:[0-9a-f:.]*$/i.test(address))
    return invalid(text, `IPv6 addresses stand in brackets, as in [${address}]:443 or [2001:db8::]/32`);
  return invalid(
    text,
    "rules are like npm, example.com, *.example.com:443, 10.0.0.0/8:5432/tcp or [2001:db8::]/32",
  );
}

function invalid(text: string, why: string): DSecError {
  return new DSecError("invalid_argument", `'${text}' is no network rule: ${why}`);
}
