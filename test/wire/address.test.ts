import { describe, expect, test } from "vitest";
import { DSecError } from "../../src/protocol/errors.ts";
import { formatAddress, parseAddress } from "../../src/wire/address.ts";

describe("addresses", () => {
  test.each([
    ["unix:/run/dsec/coordinator.sock", { kind: "unix", path: "/run/dsec/coordinator.sock" }],
    ["http://127.0.0.1:8080", { kind: "tcp", host: "127.0.0.1", port: 8080, tls: false }],
    ["http://[::1]:8080", { kind: "tcp", host: "::1", port: 8080, tls: false }],
    ["https://fleet.example:7443", { kind: "tcp", host: "fleet.example", port: 7443, tls: true }],
  ])("%s is read and written alike", (text, address) => {
    expect(parseAddress(text)).toEqual(address);
    expect(formatAddress(parseAddress(text))).toBe(text);
  });

  test("https without a port means 443", () => {
    expect(parseAddress("https://fleet.example")).toMatchObject({ port: 443 });
  });

  test.each([
    ["http://10.0.0.1:80", "need TLS"],
    ["http://fleet.example:80", "need TLS"],
    ["http://127.0.0.1.example.com", "need TLS"],
    ["ftp://127.0.0.1", "no scheme ftp"],
    ["unix:relative", "absolute path"],
    [`unix:/${"x".repeat(107)}`, "longer than 107 bytes"],
    ["https://user:secret@host", "scheme, host and port only"],
    ["https://host/path", "scheme, host and port only"],
    ["", "must be unix:/path"],
    ["localhost:80", "no scheme localhost"],
  ])("%s is refused with the reason", (text, reason) => {
    const parse = (): unknown => parseAddress(text);
    expect(parse).toThrow(DSecError);
    expect(parse).toThrow(reason);
    expect(parse).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});
