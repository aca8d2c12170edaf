import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { ProgressLine, progressText } from "../../src/commands/progress.ts";

test.each([
  [{ bytes: 0, totalBytes: 1000 }, 0, "[>                       ] 0%  0 of 1000"],
  [
    { bytes: 536_870_912, totalBytes: 1_073_741_824 },
    2000,
    "[============>           ] 50%  512M of 1G, 256M/s, 2 s left",
  ],
  [{ bytes: 1000, totalBytes: 1000 }, 10, "[========================] 100%  1000 of 1000"],
  [{ bytes: 2_097_152 }, 1000, "2M, 2M/s"],
  [{ bytes: 0, totalBytes: 0 }, 50, "0"],
])("%j after %i ms reads %s", (progress, elapsed, text) => {
  expect(progressText(progress, elapsed)).toBe(text);
});

function lineOn(isTTY: boolean) {
  let now = 0;
  const stderr = Object.assign(new PassThrough(), { isTTY });
  const stream = new PassThrough();
  const io = {
    stdin: stream,
    stdout: stream,
    stderr,
    env: {},
    now: () => now,
    readerGone: new AbortController().signal,
  };
  const line = new ProgressLine(io, true);
  const at = (time: number, bytes: number): void => {
    now = time;
    line.update({ bytes, totalBytes: 100 });
  };
  return { line, at, written: () => String(stderr.read() ?? "") };
}

test("the line is redrawn ten times a second at most, and goes at the end", () => {
  const { line, at, written } = lineOn(true);
  for (let time = 100; time < 400; time += 10) at(time, time / 10);
  expect(written().split("\r")).toHaveLength(4);
  line.clear();
  expect(written()).toBe("\r\u001b[K");
});

test("nothing is drawn where stderr is no terminal", () => {
  const { line, at, written } = lineOn(false);
  at(500, 50);
  line.clear();
  expect(written()).toBe("");
  expect(line.summary()).toBe("50 in 0.5 s, 100/s");
});
