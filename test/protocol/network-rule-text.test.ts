import { expect, test } from "vitest";
import { NetworkPolicy, NetworkRule, NetworkRules } from "../../src/protocol/network-policy.ts";
import { formatRule, parseRule } from "../../src/protocol/network-rule-text.ts";

const registry = (name: string) => ({ kind: "registry", name });
const domain = (name: string) => ({ kind: "domain", domain: name });
const cidr = (text: string) => ({ kind: "cidr", cidr: text });

test.each([
  ["npm", { target: registry("npm") }],
  ["apt-mirror:8080", { target: registry("apt-mirror"), ports: [{ from: 8080, to: 8080 }] }],
  ["example.com", { target: domain("example.com") }],
  ["*.github.com:443", { target: domain("*.github.com"), ports: [{ from: 443, to: 443 }] }],
  ["*.com/udp", { target: domain("*.com"), protocol: "udp" }],
  ["intranet.", { target: domain("intranet") }],
  ["xn--bcher-kva.example", { target: domain("xn--bcher-kva.example") }],
  ["_dmarc.example.com", { target: domain("_dmarc.example.com") }],
  ["10.0.0.0/8:5432/tcp", { target: cidr("10.0.0.0/8"), ports: [{ from: 5432, to: 5432 }], protocol: "tcp" }],
  ["10.0.0.0/8/icmp", { target: cidr("10.0.0.0/8"), protocol: "icmp" }],
  ["192.0.2.7", { target: cidr("192.0.2.7") }],
  [
    "0.0.0.0/0:80,8000-8999",
    {
      target: cidr("0.0.0.0/0"),
      ports: [
        { from: 80, to: 80 },
        { from: 8000, to: 8999 },
      ],
    },
  ],
  ["[2001:db8::]/32", { target: cidr("2001:db8::/32") }],
  [
    "[2001:db8::1]:8000-8999/udp",
    { target: cidr("2001:db8::1"), ports: [{ from: 8000, to: 8999 }], protocol: "udp" },
  ],
  ["[::]/0", { target: cidr("::/0") }],
])("%s is read, and written as it was read", (text, expected) => {
  const rule = parseRule("allow", text);
  expect(rule).toEqual({ action: "allow", ...expected });
  expect(formatRule(rule)).toBe(text);
  expect(NetworkRule.parse(rule)).toEqual(rule);
});

test.each([
  ["Example.COM.", "example.com"],
  ["*.Bücher.example", "*.xn--bcher-kva.example"],
  ["faß.de", "xn--fa-hia.de"],
  ["[2001:DB8:0:0::1]:443", "[2001:db8::1]:443"],
  ["[::ffff:10.0.0.0]/104", "10.0.0.0/8"],
  ["[::ffff:192.0.2.7]", "192.0.2.7"],
  ["192.0.2.7/32", "192.0.2.7"],
  ["npm/TCP", "npm/tcp"],
])("%s is the same rule as %s", (text, canonical) => {
  expect(formatRule(parseRule("deny", text))).toBe(canonical);
});

test.each([
  ["", "rules are like"],
  ["*", "rules are like"],
  ["NPM", "rules are like"],
  ["npm registry", "rules are like"],
  ["https://example.com", "rules are like"],
  ["exa mple.com", "is no domain"],
  ["a.*.com", "'*' can only stand for everything below a name"],
  ["*foo.com", "'*' can only stand for everything below a name"],
  ["*.", "is no domain"],
  ["-a.example.com", "is no domain"],
  ["a..example.com", "is no domain"],
  [`${"a".repeat(64)}.com`, "is no domain"],
  ["example.com/8", "is no domain"],
  ["example.com:0", "'0' is no port"],
  ["example.com:65536", "'65536' is no port"],
  ["example.com:9-8", "'9-8' is no port"],
  ["example.com:", "'' is no port"],
  ["example.com:80,", "'' is no port"],
  ["example.com:https", "'https' is no port"],
  ["example.com/sctp", "'sctp' is no protocol"],
  ["10.0.0.1/8", "has bits set beyond its /8: its network is 10.0.0.0/8"],
  ["10.0.0.0/33", "it must be from /0 to /32"],
  ["10.0.0.0/", "rules are like"],
  ["10.1", "is no address or CIDR"],
  ["010.0.0.1", "is no address or CIDR"],
  ["1.2.3.4.5", "is no address or CIDR"],
  ["0x7f.1", "is no domain"],
  ["2001:db8::1", "IPv6 addresses stand in brackets, as in [2001:db8::1]:443"],
  ["2001:db8::/32", "IPv6 addresses stand in brackets"],
  ["[2001:db8::1]/32", "has bits set beyond its /32: its network is 2001:db8::/32"],
  ["[fe80::1%eth0]", "is no address or CIDR"],
  ["[10.0.0.1]", "brackets are for IPv6"],
  ["npm/icmp", "icmp goes with addresses alone"],
  ["10.0.0.0/8:7/icmp", "icmp goes with addresses alone"],
])("'%s' is refused, saying why", (text, why) => {
  expect(() => parseRule("allow", text)).toThrow(
    expect.objectContaining({ code: "invalid_argument", message: expect.stringContaining(why) }),
  );
});

test("a policy on the wire is brought into the form in which it is compared", () => {
  const parsed = NetworkPolicy.parse({
    rules: [
      { action: "allow", target: { kind: "domain", domain: "WWW.Example.com." } },
      { action: "deny", target: { kind: "cidr", cidr: "2001:DB8::/32" } },
    ],
  });
  expect(parsed).toEqual({
    default: "deny",
    rules: [
      { action: "allow", target: domain("www.example.com") },
      { action: "deny", target: cidr("2001:db8::/32") },
    ],
  });
});

const issuesOf = (result: { error?: { issues: { message: string }[] } | undefined }) =>
  result.error?.issues.map(({ message }) => message);

test("what a policy on the wire cannot say is refused with the reason", () => {
  const rule = (target: object, rest: object = {}) => ({ rules: [{ action: "allow", target, ...rest }] });
  const messages = [
    rule(domain("a b.com")),
    rule(cidr("10.0.0.1/8")),
    rule(registry("a.b")),
    rule({ kind: "host", name: "x" }),
    rule(cidr("10.0.0.0/8"), { protocol: "icmp", ports: [{ from: 1, to: 1 }] }),
    rule(domain("a.com"), { protocol: "icmp" }),
    rule(domain("a.com"), { ports: [{ from: 9, to: 8 }] }),
  ].map((policy) => issuesOf(NetworkPolicy.safeParse(policy))?.[0]);
  expect(messages).toEqual([
    "'a b.com' is no domain: it must be like example.com or *.example.com",
    "'10.0.0.1/8' has bits set beyond its /8: its network is 10.0.0.0/8",
    "must be a lower-case DNS label",
    "kind must be registry, domain or cidr",
    "icmp has no ports: leave out ports or protocol",
    "icmp carries no names: give addresses",
    "from must not be above to",
  ]);
});

test("10,000 rules are a policy, one more is not", () => {
  const rules = Array.from({ length: 10_001 }, (_, index) => parseRule("allow", `host${index}.example.com`));
  expect(NetworkPolicy.parse({ rules: rules.slice(1) }).rules).toHaveLength(10_000);
  expect(issuesOf(NetworkPolicy.safeParse({ rules }))).toEqual(["at most 10000 rules"]);
});

test("rules by name take registries and every other rule", () => {
  expect(NetworkRules.parse({ npm: false, "*.github.com:443": true })).toEqual({
    npm: false,
    "*.github.com:443": true,
  });
  expect(issuesOf(NetworkRules.safeParse({ "n p m": true }))).toHaveLength(1);
});
