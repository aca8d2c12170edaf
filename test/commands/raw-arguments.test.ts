import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { checkArguments } from "../../src/commands/raw-arguments.ts";

function commandLine(...argv: (string | Buffer)[]): () => Buffer {
  return () => Buffer.concat(argv.flatMap((argument) => [Buffer.from(argument), Buffer.of(0)]));
}

const latin = Buffer.from([0x66, 0xfc, 0x72]);

test("bytes that are not UTF-8 are refused, with the argument's number", () => {
  const argv = ["exec", "box", "--", "cat", latin.toString()];
  const raw = commandLine("node", "dsec", "exec", "box", "--", "cat", latin);
  expect(() => checkArguments(argv, raw)).toThrow(
    expect.objectContaining({
      code: "invalid_argument",
      message: expect.stringMatching(/^argument 5 is not UTF-8/),
    }),
  );
});

test("the replacement character itself may be given", () => {
  const argv = ["exec", "box", "echo", "\u{FFFD}", ""];
  expect(() => checkArguments(argv, commandLine("node", "dsec", ...argv))).not.toThrow();
});

test("arguments that are not the process's own are left alone", () => {
  expect(() => checkArguments(["\u{FFFD}"], commandLine("node", "other"))).not.toThrow();
  expect(() => checkArguments(["\u{FFFD}"], () => new Uint8Array())).not.toThrow();
});

test("the program refuses them before it asks anybody", () => {
  const script = `"$0" bin/dsec.ts exec --address unix:/nowhere box -- cat "$(printf 'f\\374r')" 2>&1; echo "exit $?"`;
  const output = execFileSync("sh", ["-c", script, process.execPath], { encoding: "utf8" });
  expect(output).toMatch(/^dsec: argument 7 is not UTF-8.*\(invalid_argument\)$/m);
  expect(output).toContain("exit 2\n");
});
