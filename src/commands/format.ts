import { choice } from "./option.ts";
import type { OptionSpec } from "./option.ts";

export type Format = "table" | "wide" | "json" | "ndjson" | "yaml" | "name";

/** Formats a verb can print; the first is what it prints unless told otherwise. */
export type Formats = readonly [Format, ...Format[]];

/** Of verbs that list. */
export const listingFormats: Formats = ["table", "wide", "json", "ndjson", "yaml", "name"];
/** Of verbs whose output goes on as long as they run: no format that needs an end. */
export const streamFormats: Formats = ["table", "wide", "ndjson", "yaml", "name"];

/** Those of a listing, with another one first: `name` of verbs that do something, `json` of those that show all there is. */
export function formatsFrom(first: Format): Formats {
  return [first, ...listingFormats.filter((format) => format !== first)];
}

/** `-o` of a verb that can print `formats`. */
export function outputOption(formats: Formats): OptionSpec<Format> {
  const [initial] = formats;
  const option = choice("-o, --output <format>", `${formats.join("|")}; ${initial} unless given`, formats);
  return {
    ...option,
    initial,
    choices: formats,
    parse: (text) => option.parse?.(text, undefined) ?? initial,
  };
}

/** Whether errors are wanted as JSON beside data of this format. */
export function isJson(format: string | undefined): boolean {
  return format === "json" || format === "ndjson";
}
