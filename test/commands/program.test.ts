import { describe, expect, test } from "vitest";
import { parseArguments } from "../../src/commands/program.ts";
import type { Invocation } from "../../src/commands/program.ts";

interface Parsed {
  readonly invocation: Invocation | undefined;
  readonly out: string;
  readonly formats: readonly string[];
}

async function parse(...argv: string[]): Promise<Parsed> {
  let out = "";
  const formats: string[] = [];
  const invocation = await parseArguments(argv, {
    width: 100,
    writeOut: (text) => {
      out += text;
    },
    formatKnown: (format) => formats.push(format),
  });
  return { invocation, out, formats };
}

async function operands(...argv: string[]): Promise<readonly string[] | undefined> {
  return (await parse(...argv)).invocation?.operands;
}

describe("a command for a sandbox is passed on unparsed", () => {
  test.each([
    [
      ["exec", "box", "--", "ls", "-l"],
      ["box", "ls", "-l"],
    ],
    [
      ["exec", "box", "ls", "-l"],
      ["box", "ls", "-l"],
    ],
    [
      ["exec", "-i", "-e", "A=1", "box", "sh", "-c", "exit 7"],
      ["box", "sh", "-c", "exit 7"],
    ],
    [
      ["exec", "box", "--", "printf", "%s|", "a", "b c", ""],
      ["box", "printf", "%s|", "a", "b c", ""],
    ],
    [
      ["exec", "box", "grep", "--", "-i", "-o"],
      ["box", "grep", "--", "-i", "-o"],
    ],
    [
      ["exec", "box", "--", "--", "x"],
      ["box", "--", "x"],
    ],
    [
      ["exec", "--", "box", "ls", "-l"],
      ["box", "ls", "-l"],
    ],
    [
      ["exec", "box", "--help"],
      ["box", "--help"],
    ],
    [
      ["run", "--ttl", "5m", "debian", "--", "git", "--version"],
      ["debian", "git", "--version"],
    ],
    [
      ["run", "debian", "env", "--memory"],
      ["debian", "env", "--memory"],
    ],
    [["run", "debian"], ["debian"]],
  ])("%j", async (argv, expected) => {
    expect(await operands(...argv)).toEqual(expected);
  });

  test("flags before it are ours, also bundled", async () => {
    const { invocation } = await parse("exec", "-it", "--timeout=5s", "box", "-i", "cat");
    expect(invocation?.operands).toEqual(["box", "-i", "cat"]);
    expect(invocation?.given("interactive")).toBe(true);
    expect(invocation?.given("tty")).toBe(true);
    expect(invocation?.given("timeout")).toBe(5000);
  });
});

describe("global options", () => {
  test("may stand before and after the verb; the one after it wins", async () => {
    expect((await parse("--context", "a", "ls")).invocation?.globals.context).toBe("a");
    expect((await parse("ls", "--context", "b")).invocation?.globals.context).toBe("b");
    expect((await parse("--context", "a", "ls", "--context", "b")).invocation?.globals.context).toBe("b");
  });

  test("reach verbs of a noun", async () => {
    expect((await parse("config", "view", "--address", "unix:/x")).invocation?.globals.address).toBe(
      "unix:/x",
    );
    expect((await parse("--no-color", "config", "view")).invocation?.globals.noColor).toBe(true);
    expect((await parse("config", "view", "--no-color")).invocation?.globals.noColor).toBe(true);
    expect((await parse("config", "view")).invocation?.globals.noColor).toBe(false);
  });
});

describe("output formats", () => {
  test("have a default by verb", async () => {
    expect((await parse("ls")).invocation?.format).toBe("table");
    expect((await parse("inspect", "box")).invocation?.format).toBe("json");
    expect((await parse("ls", "-o", "wide")).invocation?.format).toBe("wide");
  });

  test("that do not exist are an error that lists those that do", async () => {
    await expect(parse("ls", "-o", "xml")).rejects.toMatchObject({
      code: "invalid_argument",
      message: '--output: "xml" is not one of table, wide, json, ndjson, yaml, name',
    });
  });

  test("that need an end are no formats of a watch", async () => {
    await expect(parse("watch", "-o", "json")).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("are known also when the rest is wrong", async () => {
    const formats: string[] = [];
    const terminal = {
      width: 80,
      writeOut: () => undefined,
      formatKnown: (format: string) => void formats.push(format),
    };
    await expect(parseArguments(["ls", "-o", "json", "--bogus"], terminal)).rejects.toThrow("--bogus");
    expect(formats).toEqual(["json"]);
  });
});

describe("what cannot be meant", () => {
  test.each([
    [["frobnicate"], /unknown command 'frobnicate'/],
    [["lss"], /Did you mean ls\?/],
    [["ls", "--bogus"], /unknown option '--bogus'/],
    [["--bogus", "ls"], /unknown option '--bogus'/],
    [["exec"], /missing required argument 'ref'/],
    [["exec", "box"], /missing required argument 'command'/],
    [["run"], /missing required argument 'image'/],
    [["ls", "extra"], /too many arguments/],
    [["run", "--ttl"], /argument missing/],
    [["run", "--ttl", "soon", "debian"], /^--ttl: "soon" is not a duration/],
    [["run", "--memory", "lots", "debian"], /^--memory: "lots" is not a size/],
    [["run", "--cpus", "many", "debian"], /^--cpus: "many" is not a number/],
    [["run", "-l", "novalue", "debian"], /^--label: "novalue" is not key=value/],
    [["run", "--engine", "podman", "debian"], /^--engine: "podman" is not one of runc, docker/],
    [["config", "frobnicate"], /unknown command 'frobnicate'/],
  ])("%j is invalid_argument", async (argv, message) => {
    await expect(parse(...argv)).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringMatching(message),
    });
  });
});

test.each([["--version"], ["-V"]])("%s prints the version and nothing else", async (flag) => {
  const { invocation, out } = await parse(flag);
  expect(invocation).toBeUndefined();
  expect(out).toMatch(/^\d+\.\d+\.\d+\S*\n$/);
});

test("--version after the image is the command's", async () => {
  expect(await operands("run", "debian", "--", "git", "--version")).toEqual(["debian", "git", "--version"]);
});

describe("help", () => {
  test.each([[[]], [["help"]], [["--help"]], [["-h"]]])("%j lists the verbs by heading", async (argv) => {
    const { invocation, out } = await parse(...argv);
    expect(invocation).toBeUndefined();
    expect(out).toMatch(/Sandboxes:\n\s+run\b/);
    expect(out).toMatch(/Fleet:\n\s+up\b/);
  });

  test.each([[["help", "run"]], [["run", "--help"]]])("%j shows the verb's flags", async (argv) => {
    expect((await parse(...argv)).out).toContain("--memory <size>");
  });

  test("of a noun lists its verbs", async () => {
    expect((await parse("help", "config")).out).toContain("use-context");
    expect((await parse("config")).out).toContain("use-context");
    expect((await parse("help", "config", "use-context")).out).toContain("<name>");
  });
});
