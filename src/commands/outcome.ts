import type { DSecError } from "../protocol/errors.ts";
import type { Format } from "./format.ts";
import type { Tone } from "./theme.ts";

/** One column of a listing: for the CLI's tables and the TUI's. */
export interface Column<T> {
  readonly title: string;
  readonly value: (row: T, now: number) => string;
  readonly tone?: (row: T) => Tone | undefined;
  /** Shown by `-o wide` only. */
  readonly wide?: true;
  /** Characters to keep free where rows arrive one by one. */
  readonly width?: number;
}

/** How rows of one kind are shown. */
export interface View<T> {
  readonly columns: readonly Column<T>[];
  /** What `-o name` prints: something other verbs accept. */
  readonly name: (row: T) => string;
}

export interface Cell {
  readonly text: string;
  readonly tone: Tone | undefined;
}

export interface Table {
  readonly titles: readonly string[];
  readonly widths: readonly number[];
  readonly rows: readonly (readonly Cell[])[];
}

/** Rows with the view they are shown by, whatever their kind. */
export interface Listing {
  readonly items: readonly unknown[];
  readonly names: () => readonly string[];
  readonly table: (wide: boolean, now: number) => Table;
}

/** What a verb hands back to be printed. */
export type Outcome =
  | {
      readonly type: "listing";
      readonly listing: Listing;
      /** One thing and not a list of one: JSON and YAML show it bare. */
      readonly single?: true;
      /** Whatever `-o` says: of a flag like `ls -q`. */
      readonly format?: Format;
      /** What went wrong for some; reported after the rest, and decides the exit code. */
      readonly failures?: readonly DSecError[];
      readonly exitCode?: number;
    }
  | { readonly type: "stream"; readonly entries: AsyncIterable<Listing> }
  | { readonly type: "text"; readonly text: string }
  /** Everything has been written already, e.g. by the attached command, whose exit code this is. */
  | { readonly type: "exit"; readonly code: number };

export function listingOf<T>(view: View<T>, rows: readonly T[]): Listing {
  return {
    items: rows,
    names: () => rows.map((row) => view.name(row)),
    table: (wide, now) => {
      const columns = view.columns.filter((column) => wide || column.wide !== true);
      return {
        titles: columns.map(({ title }) => title),
        widths: columns.map(({ width, title }) => Math.max(width ?? 0, title.length)),
        rows: rows.map((row) =>
          columns.map(({ value, tone }) => ({ text: value(row, now), tone: tone?.(row) })),
        ),
      };
    },
  };
}

export const done: Outcome = { type: "exit", code: 0 };
