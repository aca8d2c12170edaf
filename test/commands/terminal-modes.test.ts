import { describe, expect, test } from "vitest";
import { TerminalModes } from "../../src/commands/terminal-modes.ts";

function undo(...pieces: readonly string[]): string {
  const modes = new TerminalModes();
  for (const piece of pieces) modes.follow(Buffer.from(piece));
  return modes.undo();
}

describe("what a program leaves behind in the terminal", () => {
  test("is undone: alternate screen, hidden cursor, paste, mouse, keypad, colours", () => {
    expect(undo("\u001b[?1049h\u001b[?25lhello")).toBe("\u001b[?25h\u001b[?1049l");
    expect(undo("\u001b[?2004h$ ")).toBe("\u001b[?2004l");
    expect(undo("\u001b[?1000;1006h\u001b=")).toBe("\u001b[?1000l\u001b[?1006l\u001b>");
    expect(undo("\u001b[1;31mred")).toBe("\u001b[0m");
  });

  test("is nothing when the program has tidied up, or did nothing", () => {
    expect(undo("plain text, ünïcödé")).toBe("");
    expect(undo("\u001b[?1049h\u001b[?25l", "\u001b[?25h\u001b[?1049l")).toBe("");
    expect(undo("\u001b[31mred\u001b[m", "\u001b=\u001b>")).toBe("");
    expect(undo("\u001b[?2004h\u001b[?25l\u001bc")).toBe("");
  });

  test("is found in whatever pieces it comes", () => {
    const [...pieces] = "x\u001b[?1049h\u001b[?25ly";
    expect(undo(...pieces)).toBe("\u001b[?25h\u001b[?1049l");
  });

  test("is not taken for sequences without an end", () => {
    expect(undo(`\u001b[?${"1".repeat(1000)}`, "h", "\u001b[?2004h")).toBe("\u001b[?2004l");
  });
});
