import { PassThrough } from "node:stream";
import { describe, expect, test } from "vitest";
import type { Io } from "../../src/commands/io.ts";
import { asDSecError, reportError } from "../../src/commands/report-error.ts";
import { painter } from "../../src/commands/theme.ts";
import { DSecError, errorTable } from "../../src/protocol/errors.ts";

function report(error: DSecError, json: boolean): string {
  const stderr = new PassThrough();
  const io: Io = {
    stdin: new PassThrough(),
    stdout: new PassThrough(),
    stderr,
    env: {},
    now: () => 0,
    readerGone: new AbortController().signal,
  };
  reportError(error, io, { json, paint: painter(false) });
  return String(stderr.read());
}

describe("errors", () => {
  const error = new DSecError("start_failed", "the sandbox did not start", {
    cause: new Error("runc said no", { cause: new Error("no such file") }),
    ambiguous: true,
    details: { node: "local" },
  });

  test("are a line with the code, the causes below it", () => {
    expect(report(error, false)).toBe(
      [
        "dsec: the sandbox did not start (start_failed)",
        "  because: runc said no",
        "  because: no such file",
        "  the outcome is unknown: it may have taken effect",
        "",
      ].join("\n"),
    );
  });

  test("come with what mends them", () => {
    expect(report(new DSecError("coordinator_unreachable", "nobody answers"), false)).toContain(
      "hint: `dsec up -d`",
    );
  });

  test("are one JSON object where JSON is asked for", () => {
    expect(JSON.parse(report(error, true))).toEqual({
      code: "start_failed",
      message: "the sandbox did not start",
      retryable: true,
      ambiguous: true,
      details: { node: "local" },
      causes: ["runc said no", "no such file"],
    });
  });

  test("show control characters, and do not carry them to the terminal", () => {
    const hostile = new DSecError("invalid_argument", "unknown command '\u001b]0;owned\u0007\u009b2J'", {
      cause: new Error("line one\nline \u001b[2J two\r"),
    });
    expect(report(hostile, false)).toBe(
      [
        String.raw`dsec: unknown command '\u001b]0;owned\u0007\u009b2J' (invalid_argument)`,
        "  because: line one",
        String.raw`    line \u001b[2J two\u000d`,
        "",
      ].join("\n"),
    );
    expect(report(hostile, true)).not.toMatch(/[^\P{Cc}\n]/u);
    expect(JSON.parse(report(hostile, true))).toMatchObject({ message: hostile.message });
  });

  test("that are none of ours are internal", () => {
    expect(asDSecError(new TypeError("x is not a function")).code).toBe("internal");
    expect(asDSecError("thrown text")).toMatchObject({ code: "internal", message: "thrown text" });
  });

  test("have exit codes that cannot be taken for a command's success", () => {
    const exits = new Set(Object.values(errorTable).map(({ exit }) => exit));
    expect([...exits].sort((a, b) => a - b)).toEqual([2, 124, 125, 126, 127]);
  });
});
