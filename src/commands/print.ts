import type { Format } from "./format.ts";
import { write } from "./io.ts";
import type { Io } from "./io.ts";
import type { Listing, Outcome, Table } from "./outcome.ts";
import { printable, printableDocument } from "./printable.ts";
import type { Paint } from "./theme.ts";

export interface PrintOptions {
  readonly format: Format;
  readonly paint: Paint;
}

/** Writes what a verb handed back to stdout: the one place that does, apart from the output of commands in sandboxes. */
export async function print(outcome: Outcome, io: Io, options: PrintOptions): Promise<void> {
  switch (outcome.type) {
    case "listing":
      // where everything failed there is no data
      if (outcome.listing.items.length === 0 && (outcome.failures ?? []).length > 0) return;
      await write(io.stdout, await renderListing(outcome.listing, outcome.single === true, io, options));
      return;
    case "stream":
      await printStream(outcome.entries, io, options);
      return;
    case "text":
      await write(io.stdout, outcome.text);
      return;
    case "exit":
  }
}

async function renderListing(
  listing: Listing,
  single: boolean,
  io: Io,
  { format, paint }: PrintOptions,
): Promise<string> {
  const items: unknown = single ? listing.items[0] : listing.items;
  switch (format) {
    case "json":
      return `${printableDocument(JSON.stringify(items, null, 2))}\n`;
    case "ndjson":
      return listing.items.map((item) => `${printableDocument(JSON.stringify(item))}\n`).join("");
    case "yaml":
      return renderYaml(items);
    case "name":
      return listing
        .names()
        .map((name) => `${name}\n`)
        .join("");
    case "table":
    case "wide":
      return renderTable(listing.table(format === "wide", io.now()), paint);
  }
}

async function printStream(entries: AsyncIterable<Listing>, io: Io, options: PrintOptions): Promise<void> {
  const { format, paint } = options;
  let first = true;
  for await (const entry of entries) {
    if (io.readerGone.aborted) return;
    if (format === "table" || format === "wide") {
      const table = entry.table(format === "wide", io.now());
      if (first) await write(io.stdout, renderRow(titleCells(table), table.widths, paint));
      for (const row of table.rows) await write(io.stdout, renderRow(row, table.widths, paint));
    } else {
      if (format === "yaml" && !first) await write(io.stdout, "---\n");
      await write(io.stdout, await renderListing(entry, true, io, options));
    }
    first = false;
  }
}

async function renderYaml(items: unknown): Promise<string> {
  const { stringify } = await import("yaml");
  return printableDocument(stringify(items, { lineWidth: 0, aliasDuplicateObjects: false }));
}

/** Columns as wide as they must be, two spaces between them: what can be read, and cut by awk. */
function renderTable(table: Table, paint: Paint): string {
  const rows = [titleCells(table), ...table.rows];
  const widths = table.titles.map((_, column) =>
    rows.reduce((width, row) => Math.max(width, visible(row[column]?.text ?? "").length), 0),
  );
  return rows.map((row) => renderRow(row, widths, paint)).join("");
}

function titleCells(table: Table): Table["rows"][number] {
  return table.titles.map((text) => ({ text, tone: "heading" }));
}

function renderRow(row: Table["rows"][number], widths: readonly number[], paint: Paint): string {
  const cells = row.map(({ text, tone }, index) => {
    const shown = visible(text);
    return paint(shown, tone) + " ".repeat(Math.max(0, (widths[index] ?? 0) - shown.length));
  });
  return `${cells.join("  ").trimEnd()}\n`;
}

function visible(text: string): string {
  return text === "" ? "-" : printable(text);
}
