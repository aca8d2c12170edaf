import { describe, expect, test } from "vitest";
import { DetachKeys } from "../../src/commands/detach-keys.ts";

function type(...chunks: readonly string[]): { readonly forwarded: string; readonly detached: boolean } {
  const keys = new DetachKeys();
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
    expect(type("ls\x10\x11rest")).toEqual({ forwarded: "ls", detached: true });
    expect(type("ls\x10", "\x11")).toEqual({ forwarded: "ls", detached: true });
    expect(type("\x10\x10\x11")).toEqual({ forwarded: "\x10", detached: true });
  });

  test("every other use of them reaches the command", () => {
    expect(type("\x11a\x10b\x11")).toEqual({ forwarded: "\x11a\x10b\x11", detached: false });
    expect(type("\x10", "x")).toEqual({ forwarded: "\x10x", detached: false });
  });

  test("a ctrl-p is held back until the next key", () => {
    expect(type("a\x10")).toEqual({ forwarded: "a", detached: false });
  });

  test("bytes are passed on as they are", () => {
    const bytes = String.fromCharCode(...Array.from({ length: 256 }, (_, byte) => byte)).replace("\x10", "");
    expect(type(bytes).forwarded).toBe(bytes);
  });
});
