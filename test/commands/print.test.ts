import { PassThrough } from "node:stream";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import type { Format } from "../../src/commands/format.ts";
import type { Io } from "../../src/commands/io.ts";
import { listingOf } from "../../src/commands/outcome.ts";
import type { Outcome, View } from "../../src/commands/outcome.ts";
import { print } from "../../src/commands/print.ts";
import { painter } from "../../src/commands/theme.ts";

interface Fruit {
  readonly name: string;
  readonly color?: string;
  readonly grams: number;
}

const fruitView: View<Fruit> = {
  columns: [
    { title: "NAME", width: 8, value: ({ name }) => name },
    { title: "COLOR", value: ({ color }) => color ?? "", tone: () => "good" },
    { title: "GRAMS", wide: true, value: ({ grams }) => String(grams) },
  ],
  name: ({ name }) => name,
};
const fruits: readonly Fruit[] = [
  { name: "apple", color: "red", grams: 150 },
  { name: "honeydew melon", grams: 1500 },
];
const listing: Outcome = { type: "listing", listing: listingOf(fruitView, fruits) };

async function printed(outcome: Outcome, format: Format, colors = false): Promise<string> {
  const stdout = new PassThrough({ highWaterMark: 10_000_000 });
  const io: Io = {
    stdin: new PassThrough(),
    stdout,
    stderr: new PassThrough(),
    env: {},
    now: () => 0,
    readerGone: new AbortController().signal,
  };
  await print(outcome, io, { format, paint: painter(colors) });
  return String(stdout.read() ?? "");
}

describe("output formats", () => {
  test("table aligns columns and shows what is missing as a dash", async () => {
    expect(await printed(listing, "table")).toBe(
      "NAME            COLOR\napple           red\nhoneydew melon  -\n",
    );
  });

  test("wide adds columns", async () => {
    expect(await printed(listing, "wide")).toBe(
      "NAME            COLOR  GRAMS\napple           red    150\nhoneydew melon  -      1500\n",
    );
  });

  test("json is an array that can be read back", async () => {
    expect(JSON.parse(await printed(listing, "json"))).toEqual(fruits);
  });

  test("json of one thing is that thing", async () => {
    const one: Outcome = { type: "listing", single: true, listing: listingOf(fruitView, fruits.slice(0, 1)) };
    expect(JSON.parse(await printed(one, "json"))).toEqual(fruits[0]);
  });

  test("ndjson is an object a line", async () => {
    expect(await printed(listing, "ndjson")).toBe(
      '{"name":"apple","color":"red","grams":150}\n{"name":"honeydew melon","grams":1500}\n',
    );
  });

  test("yaml", async () => {
    expect(await printed(listing, "yaml")).toBe(
      "- name: apple\n  color: red\n  grams: 150\n- name: honeydew melon\n  grams: 1500\n",
    );
  });

  test("name is a name a line, and nothing for nothing", async () => {
    expect(await printed(listing, "name")).toBe("apple\nhoneydew melon\n");
    expect(await printed({ type: "listing", listing: listingOf(fruitView, []) }, "name")).toBe("");
  });

  test("an empty table still has its header, an empty json list its brackets", async () => {
    const empty: Outcome = { type: "listing", listing: listingOf(fruitView, []) };
    expect(await printed(empty, "table")).toBe("NAME  COLOR\n");
    expect(await printed(empty, "json")).toBe("[]\n");
  });

  test("control characters from users are shown, not sent to the terminal", async () => {
    const evil = [{ name: "a\u001b[31m\nb\u009b2J", grams: 1 }];
    const hostile: Outcome = { type: "listing", listing: listingOf(fruitView, evil) };
    expect(await printed(hostile, "table")).toContain(String.raw`a\u001b[31m\u000ab\u009b2J`);
    for (const format of ["json", "ndjson", "yaml"] as const)
      expect(await printed(hostile, format)).not.toMatch(/[^\P{Cc}\n]/u);
    expect(JSON.parse(await printed(hostile, "json"))).toEqual(evil);
    expect(parse(await printed(hostile, "yaml"))).toEqual(evil);
  });

  test("a table of a whole fleet", async () => {
    const many = Array.from({ length: 150_000 }, () => ({ name: "fig", grams: 50 }));
    const text = await printed({ type: "listing", listing: listingOf(fruitView, many) }, "table");
    expect(text === `NAME  COLOR\n${"fig   -\n".repeat(150_000)}`).toBe(true);
  });

  test("colours do not disturb the columns", async () => {
    const { stripVTControlCharacters } = await import("node:util");
    const colored = await printed(listing, "table", true);
    expect(colored).toContain("\u001b[32mred\u001b[39m");
    expect(
      stripVTControlCharacters(colored)
        .split("\n")
        .map((line) => line.trimEnd()),
    ).toEqual((await printed(listing, "table")).split("\n"));
  });

  describe("of what arrives bit by bit", () => {
    async function* entries() {
      for (const fruit of fruits) yield listingOf(fruitView, [fruit]);
    }
    const stream = (): Outcome => ({ type: "stream", entries: entries() });

    test("table keeps room for each column", async () => {
      expect(await printed(stream(), "table")).toBe("NAME      COLOR\napple     red\nhoneydew melon  -\n");
    });

    test("ndjson and name are a line an entry, yaml a document", async () => {
      expect(await printed(stream(), "ndjson")).toBe(await printed(listing, "ndjson"));
      expect(await printed(stream(), "name")).toBe("apple\nhoneydew melon\n");
      expect(await printed(stream(), "yaml")).toBe(
        "name: apple\ncolor: red\ngrams: 150\n---\nname: honeydew melon\ngrams: 1500\n",
      );
    });
  });
});
