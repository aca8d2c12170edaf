import { expect, test } from "vitest";
import { EndMarkerScanner } from "../../../src/daemon/sessions/end-marker.ts";

const nonce = "abcDEF_123-4";
const marker = `\x1e${nonce}7\x1e`;

/** What a scanner passes on of a stream that comes in these pieces. */
function scan(pieces: readonly Buffer[]): { output: Buffer; status: number | undefined } {
  const scanner = new EndMarkerScanner(nonce);
  const output: Buffer[] = [];
  for (const piece of pieces) {
    const scanned = scanner.push(piece);
    output.push(scanned.output);
    if (scanned.status !== undefined) return { output: Buffer.concat(output), status: scanned.status };
  }
  return { output: Buffer.concat([...output, scanner.rest()]), status: undefined };
}

test("the marker ends the output wherever the stream is cut", () => {
  const output = Buffer.from(`a\0b\x1e\x1e${nonce.slice(0, 5)}\x1e${nonce}x\x1ec`);
  const stream = Buffer.concat([output, Buffer.from(marker), Buffer.from("later")]);
  for (let first = 0; first <= stream.length; first++)
    for (let second = first; second <= stream.length; second++) {
      const pieces = [stream.subarray(0, first), stream.subarray(first, second), stream.subarray(second)];
      expect(scan(pieces)).toEqual({ output, status: 7 });
    }
});

test("byte by byte the output is the same", () => {
  const stream = Buffer.from(`x\x1e${nonce}-${marker}`);
  expect(scan([...stream].map((byte) => Buffer.from([byte])))).toEqual({
    output: Buffer.from(`x\x1e${nonce}-`),
    status: 7,
  });
});

test("a stream without the marker is passed on whole", () => {
  for (const text of [
    "",
    "x",
    "\x1e",
    `\x1e${nonce}`,
    `\x1e${nonce}3`,
    `\x1e${nonce}\x1e`,
    `\x1e${nonce}1234567`,
  ])
    expect(scan([Buffer.from(text)])).toEqual({ output: Buffer.from(text), status: undefined });
});

test("nothing is held back but the beginning of a marker", () => {
  const scanner = new EndMarkerScanner(nonce);
  expect(scanner.push(Buffer.from("abc\x1eabd")).output.toString()).toBe("abc\x1eabd");
  expect(scanner.push(Buffer.from("abc\x1eabc")).output.toString()).toBe("abc");
  expect(scanner.push(Buffer.from("!")).output.toString()).toBe("\x1eabc!");
});
