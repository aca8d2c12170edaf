import { describe, expect, test } from "vitest";
import { parseEnvFile, parseEnvSetting, parseKeyValue } from "../../src/commands/key-value.ts";

describe("key=value", () => {
  test("the value may be empty and may contain equals signs", () => {
    expect(parseKeyValue("a=")).toEqual(["a", ""]);
    expect(parseKeyValue("a=b=c")).toEqual(["a", "b=c"]);
  });

  test.each(["", "a", "=b"])("%j is refused", (text) => {
    expect(() => parseKeyValue(text)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });

  test("a bare name takes its value from the environment, and is left out where it has none", () => {
    expect(parseEnvSetting("HOME", { HOME: "/root" })).toEqual(["HOME", "/root"]);
    expect(parseEnvSetting("NOPE", {})).toBeUndefined();
  });

  test("an env file is read verbatim, without comments and empty lines", () => {
    const content = `# comment\nA=1\n\n  B="two words"\r\nC=x # not a comment\nHOME\nNOPE\n`;
    expect(parseEnvFile(content, { HOME: "/root" })).toEqual([
      ["A", "1"],
      ["B", '"two words"'],
      ["C", "x # not a comment"],
      ["HOME", "/root"],
    ]);
  });
});
