import { describe, expect, test } from "vitest";
import { formatSize, parseMebibytes, parseSize } from "../../src/commands/size.ts";

describe("sizes", () => {
  test.each([
    ["0", 0],
    ["1048576", 1_048_576],
    ["10b", 10],
    ["1k", 1024],
    ["512m", 536_870_912],
    ["512M", 536_870_912],
    ["1.5g", 1_610_612_736],
    ["2GiB", 2_147_483_648],
    ["2gb", 2_147_483_648],
    ["1t", 1_099_511_627_776],
  ])("%s is %i bytes, as docker reads it", (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });

  test.each(["", "-1", "1x", "m", "1 g", "1e9", "0x10", "12mm"])("%j is refused", (text) => {
    expect(() => parseSize(text)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });

  test("MiB are rounded up", () => {
    expect(parseMebibytes("512m")).toBe(512);
    expect(parseMebibytes("1048577")).toBe(2);
    expect(parseMebibytes("100k")).toBe(1);
    expect(parseMebibytes("0")).toBe(0);
  });

  test("a plain number below a MiB asks back instead of meaning bytes", () => {
    expect(() => parseMebibytes("512")).toThrow(/did you mean 512m\?/);
  });

  test.each([
    [0, "0"],
    [1023, "1023"],
    [1024, "1K"],
    [536_870_912, "512M"],
    [1_610_612_736, "1.5G"],
    [2_199_023_255_552, "2T"],
    [2_251_799_813_685_248, "2048T"],
  ])("%i bytes are shown as %s", (bytes, text) => {
    expect(formatSize(bytes)).toBe(text);
  });
});
