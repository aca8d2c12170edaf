import { describe, expect, test } from "vitest";
import { compilePolicy } from "../../../../src/daemon/network/policy/compile.ts";
import { judge, judgeName } from "../../../../src/daemon/network/policy/judge.ts";
import { protectedRanges } from "../../../../src/daemon/network/policy/protected-ranges.ts";
import type { RegistryTable } from "../../../../src/daemon/network/policy/registry-table.ts";
import type { NetworkPolicy } from "../../../../src/protocol/network-policy.ts";
import { parseRule } from "../../../../src/protocol/network-rule-text.ts";

const https = 443;
const registries: RegistryTable = new Map([
  ["npm", { domains: ["registry.npmjs.org"], cidrs: [], ports: [https] }],
  ["pypi", { domains: ["pypi.org", "*.pythonhosted.org"], cidrs: [], ports: [https] }],
  ["mirror", { domains: ["registry.npmjs.org"], cidrs: ["198.51.100.0/28"], ports: [4873] }],
]);
const context = {
  registries,
  protectedRanges: protectedRanges(["192.0.2.1", "2001:db8:1::1"], ["10.213.0.0/16"]),
};

/** `+ text` allows, `- text` denies, `open` makes the default allow. */
function policyOf(text: string): NetworkPolicy {
  const lines = text.split("\n").map((line) => line.trim());
  return {
    default: lines.includes("open") ? "allow" : "deny",
    rules: lines
      .filter((line) => /^[+-]/.test(line))
      .map((line) => parseRule(line.startsWith("+") ? "allow" : "deny", line.slice(2))),
  };
}

const compile = (text: string) => compilePolicy(policyOf(text), context);

/** `address:port/protocol=name`, of which port, protocol and name may be missing. */
function ask(policy: string, question: string): string {
  const [where = "", name] = question.split("=");
  const [, v6, v4, port, protocol = "tcp"] =
    /^(?:\[([^\]]+)\]|([^:/]+))(?::(\d+))?(?:\/(tcp|udp|icmp|other))?$/.exec(where) ?? [];
  const { allowed, by } = judge(compile(policy), {
    address: v6 ?? v4 ?? "",
    port: port === undefined ? undefined : Number(port),
    protocol: protocol as "tcp",
    name,
  });
  const reason = by.kind === "rule" ? by.text : by.kind === "protected" ? by.range : by.kind;
  return `${allowed ? "yes" : "no"}: ${reason}`;
}

describe("precedence", () => {
  test.each([
    ["", "203.0.113.5:443", "no: default"],
    ["open", "203.0.113.5:443", "yes: default"],
    ["+ 203.0.113.0/24", "203.0.113.5:443", "yes: allow 203.0.113.0/24"],
    ["+ 203.0.113.0/24\n- 203.0.113.5", "203.0.113.5:443", "no: deny 203.0.113.5"],
    ["- 203.0.113.5\n+ 203.0.113.0/24", "203.0.113.5:443", "no: deny 203.0.113.5"],
    ["- 203.0.113.0/24\n+ 203.0.113.5", "203.0.113.5:443", "no: deny 203.0.113.0/24"],
    ["open\n- 203.0.113.0/24:25", "203.0.113.5:25", "no: deny 203.0.113.0/24:25"],
    ["open\n- 203.0.113.0/24:25", "203.0.113.5:26", "yes: default"],
    ["+ 203.0.113.0/24\n+ 203.0.113.5", "203.0.113.5:1", "yes: allow 203.0.113.0/24"],
    ["+ 203.0.113.5\n+ 203.0.113.0/24", "203.0.113.5:1", "yes: allow 203.0.113.5"],
    ["+ 203.0.113.5\n- evil.example", "203.0.113.5:443=evil.example", "no: deny evil.example"],
    ["+ good.example\n- 203.0.113.5", "203.0.113.5:443=good.example", "no: deny 203.0.113.5"],
  ])("of '%s': %s → %s", (policy, question, verdict) => {
    expect(ask(policy, question)).toBe(verdict);
  });
});

describe("names", () => {
  test.each([
    ["+ example.com", "203.0.113.5:443=example.com", "yes: allow example.com"],
    ["+ example.com", "203.0.113.5:80=example.com", "yes: allow example.com"],
    ["+ example.com", "203.0.113.5:22=example.com", "no: default"],
    ["+ example.com", "203.0.113.5:443/udp=example.com", "no: default"],
    ["+ example.com:443/udp", "203.0.113.5:443/udp=example.com", "yes: allow example.com:443/udp"],
    ["+ example.com", "203.0.113.5:443", "no: default"],
    ["+ example.com", "203.0.113.5:443=www.example.com", "no: default"],
    ["+ example.com", "203.0.113.5:443=EXAMPLE.com.", "yes: allow example.com"],
    ["+ *.example.com", "203.0.113.5:443=example.com", "no: default"],
    ["+ *.example.com", "203.0.113.5:443=www.example.com", "yes: allow *.example.com"],
    ["+ *.example.com", "203.0.113.5:443=a.b.example.com", "yes: allow *.example.com"],
    ["+ *.example.com", "203.0.113.5:443=badexample.com", "no: default"],
    ["+ *.example.com\n- a.example.com", "203.0.113.5:443=a.example.com", "no: deny a.example.com"],
    ["+ a.example.com\n- *.example.com", "203.0.113.5:443=a.example.com", "no: deny *.example.com"],
    ["open\n- example.com", "203.0.113.5:9999/udp=example.com", "no: deny example.com"],
    ["+ bücher.example", "203.0.113.5:443=BÜCHER.example", "yes: allow xn--bcher-kva.example"],
    ["+ bücher.example", "203.0.113.5:443=xn--bcher-kva.example", "yes: allow xn--bcher-kva.example"],
    ["+ example.com", "203.0.113.5:443=exa mple.com", "no: default"],
  ])("of '%s': %s → %s", (policy, question, verdict) => {
    expect(ask(policy, question)).toBe(verdict);
  });
});

describe("registries", () => {
  test.each([
    ["+ pypi\n- npm", "203.0.113.5:443=files.pythonhosted.org", "yes: allow pypi"],
    ["+ pypi\n- npm", "203.0.113.5:443=registry.npmjs.org", "no: deny npm"],
    ["+ pypi", "203.0.113.5:80=pypi.org", "no: default"],
    ["+ pypi:80", "203.0.113.5:80=pypi.org", "yes: allow pypi:80"],
    ["open\n- npm", "203.0.113.5:4873/udp=registry.npmjs.org", "no: deny npm"],
    ["+ mirror", "198.51.100.3:4873", "yes: allow mirror"],
    ["+ mirror", "198.51.100.3:22", "no: default"],
    ["open\n- mirror", "198.51.100.3:22", "no: deny mirror"],
  ])("of '%s': %s → %s", (policy, question, verdict) => {
    expect(ask(policy, question)).toBe(verdict);
  });

  test("one that the node does not know is refused by name", () => {
    expect(() => compile("+ npm\n+ cargo\n- gems")).toThrow(
      expect.objectContaining({
        code: "unknown_registry",
        message: expect.stringContaining("no registry cargo, gems: it knows npm, pypi, mirror"),
        details: { registries: ["cargo", "gems"] },
      }),
    );
  });

  test("a denied one that shares a host with an allowed one closes it, and that is said", () => {
    expect(compile("+ npm\n- mirror").warnings).toEqual([
      "'deny mirror' closes registry.npmjs.org, which 'allow npm' needs",
    ]);
    expect(compile("+ pypi\n- npm").warnings).toEqual([]);
  });

  test("rules that allow IPv6 addresses are named in one warning, however many there are", () => {
    expect(compile("+ [2001:db8::]/32\n- [2001:db8::1]\n+ 192.0.2.0/24").warnings).toEqual([
      "sandboxes have no IPv6: 'allow [2001:db8::]/32' cannot open its addresses",
    ]);
    const many = Array.from({ length: 7 }, (_, n) => `+ [2001:db8::${n}]`).join("\n");
    expect(compile(many).warnings).toEqual([expect.stringMatching(/ and 2 more cannot open/)]);
    expect(compile("- [2001:db8::]/32").warnings).toEqual([]);
  });
});

describe("protected addresses", () => {
  test.each([
    ["open", "169.254.169.254:80", "no: metadata"],
    ["open", "169.254.1.1:80", "no: link-local"],
    ["open", "[fe80::1]:80", "no: link-local"],
    ["open", "[fd00:ec2::254]:80", "no: metadata"],
    ["open", "192.0.2.1:22", "no: node"],
    ["open", "[2001:db8:1::1]:22", "no: node"],
    ["open", "10.213.7.7:80", "no: sandboxes"],
    ["open", "239.1.2.3:5353/udp", "no: multicast"],
    ["open", "[ff02::fb]:5353/udp", "no: multicast"],
    ["open", "255.255.255.255:67/udp", "no: reserved"],
    ["open", "0.0.0.0:80", "no: reserved"],
    ["open", "127.0.0.1:80", "no: loopback"],
    ["open", "[::1]:80", "no: loopback"],
    ["open", "[64:ff9b::a9fe:a9fe]:80", "no: translated"],
    ["open", "[2002:a9fe:a9fe::]:80", "no: translated"],
    ["open", "[::ffff:169.254.169.254]:80", "no: metadata"],
    ["open", "10.1.2.3:80", "yes: default"],
    ["+ 0.0.0.0/0", "169.254.169.254:80", "no: metadata"],
    ["+ 10.0.0.0/8", "10.213.7.7:80", "no: sandboxes"],
    ["+ 169.254.0.0/16", "169.254.169.254:80", "no: metadata"],
    ["+ 169.254.0.0/16", "169.254.1.1:80", "yes: allow 169.254.0.0/16"],
    ["+ 169.254.169.254:80", "169.254.169.254:80", "yes: allow 169.254.169.254:80"],
    ["+ 169.254.169.254:80", "169.254.169.254:81", "no: metadata"],
    ["+ 192.0.2.1:8080/tcp", "192.0.2.1:8080", "yes: allow 192.0.2.1:8080/tcp"],
    ["+ 10.213.7.0/24", "10.213.7.7:80", "yes: allow 10.213.7.0/24"],
    ["+ rebound.example", "169.254.169.254:80=rebound.example", "no: metadata"],
    ["+ rebound.example", "192.0.2.1:443=rebound.example", "no: node"],
    ["+ 169.254.169.254\n- 0.0.0.0/0", "169.254.169.254:80", "no: deny 0.0.0.0/0"],
  ])("of '%s': %s → %s", (policy, question, verdict) => {
    expect(ask(policy, question)).toBe(verdict);
  });
});

describe("ports and protocols", () => {
  test.each([
    ["+ 203.0.113.0/24:53/udp", "203.0.113.5:53/udp", "yes: allow 203.0.113.0/24:53/udp"],
    ["+ 203.0.113.0/24:53/udp", "203.0.113.5:53/tcp", "no: default"],
    ["+ 203.0.113.0/24:80,8000-8999", "203.0.113.5:8999", "yes: allow 203.0.113.0/24:80,8000-8999"],
    ["+ 203.0.113.0/24:80,8000-8999", "203.0.113.5:9000", "no: default"],
    ["+ 203.0.113.0/24:80", "203.0.113.5/icmp", "no: default"],
    ["+ 203.0.113.0/24/icmp", "203.0.113.5/icmp", "yes: allow 203.0.113.0/24/icmp"],
    ["+ 203.0.113.0/24", "203.0.113.5/other", "yes: allow 203.0.113.0/24"],
    ["open\n- 203.0.113.0/24:80", "203.0.113.5/icmp", "yes: default"],
    ["+ [2001:db8::]/32", "[2001:db8::5]:443", "yes: allow [2001:db8::]/32"],
    ["+ [2001:db8::]/32", "[2001:db9::5]:443", "no: default"],
    ["+ [::]/0", "203.0.113.5:443", "no: default"],
    ["+ 203.0.113.0/24", "[::ffff:203.0.113.5]:443", "yes: allow 203.0.113.0/24"],
  ])("of '%s': %s → %s", (policy, question, verdict) => {
    expect(ask(policy, question)).toBe(verdict);
  });

  test("what is no address is an error, not a verdict", () => {
    expect(() => ask("open", "256.1.1.1:80")).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});

describe("whether a name is answered", () => {
  test.each([
    ["", "example.com", false],
    ["open", "example.com", true],
    ["+ example.com", "example.com", true],
    ["+ example.com", "Example.COM.", true],
    ["+ example.com", "data.example.com", false],
    ["+ *.example.com", "example.com", false],
    ["+ 0.0.0.0/0", "example.com", false],
    ["open\n- example.com", "example.com", false],
    ["+ example.com\n- example.com:80", "example.com", true],
    ["+ example.com\n- *.com", "example.com", false],
    ["open", "not a name", false],
  ])("by '%s': %s → %s", (policy, name, answered) => {
    expect(judgeName(compile(policy), name).allowed).toBe(answered);
  });
});

test("10,000 rules are compiled, and each is found", () => {
  const text = Array.from(
    { length: 5000 },
    (_, n) => `+ h${n}.example.com\n- 198.18.${n >> 8}.${n & 255}`,
  ).join("\n");
  const policy = compile(text);
  expect(policy.source.rules).toHaveLength(10_000);
  const verdicts = [0, 2500, 4999].map((n) => ({
    name: judge(policy, { address: "203.0.113.5", port: 443, protocol: "tcp", name: `h${n}.example.com` }).by,
    address: judge(policy, { address: `198.18.${n >> 8}.${n & 255}`, port: 1, protocol: "tcp" }).by,
  }));
  expect(verdicts).toEqual(
    [0, 2500, 4999].map((n) => ({
      name: { kind: "rule", index: 2 * n, text: `allow h${n}.example.com` },
      address: { kind: "rule", index: 2 * n + 1, text: `deny 198.18.${n >> 8}.${n & 255}` },
    })),
  );
});
