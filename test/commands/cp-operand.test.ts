import { describe, expect, test } from "vitest";
import { destinationOf, type Found, parseOperand } from "../../src/commands/cp-operand.ts";

describe("an operand", () => {
  test.each([
    ["web-1:/etc", { type: "remote", ref: "web-1", path: "/etc" }],
    ["web-1:etc/x", { type: "remote", ref: "web-1", path: "/etc/x" }],
    ["web-1:/a:b", { type: "remote", ref: "web-1", path: "/a:b" }],
    ["-", { type: "stream" }],
    ["./a:b", { type: "local", path: "./a:b" }],
    ["/a:b", { type: "local", path: "/a:b" }],
    [".", { type: "local", path: "." }],
    ["file", { type: "local", path: "file" }],
  ])("%s is read as docker reads it", (text, operand) => {
    expect(parseOperand(text)).toEqual(operand);
  });

  test.each(["", ":/x", "web-1:"])("%j is refused", (text) => {
    expect(() => parseOperand(text)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});

describe("a destination", () => {
  const file = { path: "/src/f", isDirectory: false, isLocal: true };
  const directory = { path: "/src/d", isDirectory: true, isLocal: true };
  const contents = { path: "/src/d/.", isDirectory: true, isLocal: true };
  const remote = { path: "/src/d/", isDirectory: true, isLocal: false };
  const cases: [string, typeof file, string, Found, string][] = [
    ["a file to nothing", file, "/x", "nothing", "/x"],
    ["a file to a file", file, "/x", "file", "/x"],
    ["a file to a directory", file, "/x", "directory", "/x/f"],
    ["a file to a directory/", file, "/x/", "directory", "/x/f"],
    ["a directory to nothing", directory, "/x", "nothing", "/x"],
    ["a directory to nothing/", directory, "/x/", "nothing", "/x/"],
    ["a directory to a directory", directory, "/x", "directory", "/x/d"],
    ["a directory/ to a directory", remote, "/x", "directory", "/x/d"],
    ["what is in a directory to nothing", contents, "/x", "nothing", "/x"],
    ["what is in a directory to a directory", contents, "/x", "directory", "/x"],
    ["the root", { path: "/", isDirectory: true, isLocal: false }, "/x", "directory", "/x"],
  ];
  test.each(cases)("of %s is docker's", (_, source, path, found, expected) => {
    expect(destinationOf(source, { path, found })).toBe(expected);
  });

  test.each<[string, typeof file, string, Found, string]>([
    ["a file to nothing/", file, "/x/", "nothing", "ENOENT"],
    ["a file to a file/", file, "/x/", "file", "ENOTDIR"],
    ["a directory to a file", directory, "/x", "file", "ENOTDIR"],
  ])("of %s is refused", (_, source, path, found, errno) => {
    expect(() => destinationOf(source, { path, found })).toThrow(
      expect.objectContaining({ code: "file_error", details: { path, errno } }),
    );
  });
});
