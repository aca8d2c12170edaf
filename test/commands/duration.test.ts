import { describe, expect, test } from "vitest";
import { formatDuration, parseDuration, parseInstant, parseSeconds } from "../../src/commands/duration.ts";

describe("durations", () => {
  test.each([
    ["90", 90_000],
    ["0", 0],
    ["1.5", 1500],
    ["250ms", 250],
    ["5m", 300_000],
    ["1h30m", 5_400_000],
    ["2d", 172_800_000],
    ["1.5h", 5_400_000],
  ])("%s is read as %i ms", (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  test.each(["", "-5", "5x", "m", "1h-2m", "1e3", "5 m", "١m", "--ttl"])("%j is refused", (text) => {
    expect(() => parseDuration(text)).toThrow(
      expect.objectContaining({
        code: "invalid_argument",
        message: expect.stringContaining(JSON.stringify(text)),
      }),
    );
  });

  test("seconds are rounded up, so that a limit is never shorter than asked", () => {
    expect(parseSeconds("1500ms")).toBe(2);
    expect(parseSeconds("0")).toBe(0);
  });

  test.each([
    [0, "0s"],
    [59_999, "59s"],
    [300_000, "5m"],
    [310_000, "5m10s"],
    [10_920_000, "3h2m"],
    [349_200_000, "4d1h"],
    [3_600_000 + 5000, "1h"],
    [-1, "0s"],
  ])("%i ms are shown as %s", (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  test("a point in time is a duration ago or a date", () => {
    expect(parseInstant("5m", 1_000_000)).toBe(700_000);
    expect(parseInstant("2026-01-02T03:04:05Z", 0)).toBe(Date.UTC(2026, 0, 2, 3, 4, 5));
    expect(() => parseInstant("2026-13-45", 0)).toThrow(
      expect.objectContaining({ code: "invalid_argument" }),
    );
  });
});
