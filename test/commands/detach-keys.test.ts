import { describe, expect, test } from "vitest";
import { DetachKeys, parseDetachKeys, usualDetachKeys } from "../../src/commands/detach-keys.ts";

interface Typed {
  readonly forwarded: string;
  readonly detached: boolean;
}

function type(chunks: readonly string[], sequence = usualDetachKeys): Typed {
  const keys = new DetachKeys(sequence);
  let forwarded = "";
  for (const chunk of chunks) {
    const { forward, detach } = keys.read(Buffer.from(chunk, "latin1"));
    forwarded += Buffer.from(forward).toString("latin1");
    if (detach) return { forwarded, detached: true };
  }
  return { forwarded, detached: false };
}

describe("detach keys", () => {
  test("ctrl-p ctrl-q detaches, in one piece or two", () => {
    expect(type(["ls\x10\x11rest"])).toEqual({ forwarded: "ls", detached: true });
    expect(type(["ls\x10", "\x11"])).toEqual({ forwarded: "ls", detached: true });
    expect(type(["\x10\x10\x11"])).toEqual({ forwarded: "\x10", detached: true });
  });

  test("every other use of them reaches the command", () => {
    expect(type(["\x11a\x10b\x11"])).toEqual({ forwarded: "\x11a\x10b\x11", detached: false });
    expect(type(["\x10", "x"])).toEqual({ forwarded: "\x10x", detached: false });
  });

  test("the beginning of them is held back until the next key", () => {
    expect(type(["a\x10"])).toEqual({ forwarded: "a", detached: false });
    expect(type(["a\x10", "\x10"])).toEqual({ forwarded: "a\x10", detached: false });
  });

  test("a sequence may begin again within itself", () => {
    const keys = parseDetachKeys("a,a,b");
    expect(type(["aaab"], keys)).toEqual({ forwarded: "a", detached: true });
    expect(type(["a", "a", "c", "a", "b"], keys)).toEqual({ forwarded: "aacab", detached: false });
  });

  test("without any, nothing detaches and nothing is held back", () => {
    expect(type(["a\x10\x11b"], parseDetachKeys(""))).toEqual({ forwarded: "a\x10\x11b", detached: false });
  });

  test("bytes are passed on as they are", () => {
    const bytes = String.fromCharCode(...Array.from({ length: 256 }, (_, byte) => byte)).replace("\x10", "");
    expect(type([bytes]).forwarded).toBe(bytes);
    expect(type([`\x10${bytes}`]).forwarded).toBe(`\x10${bytes}`);
  });
});

describe("a sequence of keys", () => {
  test.each([
    ["ctrl-p,ctrl-q", [16, 17]],
    ["ctrl-a,d", [1, 100]],
    ["ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", [0, 27, 28, 29, 30, 31]],
    ["~,.", [126, 46]],
  ])("is written as docker has it: %s", (text, keys) => {
    expect([...parseDetachKeys(text)]).toEqual(keys);
  });

  test.each(["ctrl-", "ctrl-1", "ab", "a,", "é", "ctrl-p ctrl-q"])("that is none is refused: %s", (text) => {
    expect(() => parseDetachKeys(text)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});
