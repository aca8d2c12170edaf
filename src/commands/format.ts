import { choice } from "./option.ts";
import type { OptionSpec } from "./option.ts";

export type Format = "table" | "wide" | "json" | "ndjson" | "yaml" | "name";

/** Of verbs that list or read. */
export const listingFormats: readonly Format[] = ["table", "wide", "json", "ndjson", "yaml", "name"];
/** Of verbs whose output goes on as long as they run: no format that needs an end. */
export const streamFormats: readonly Format[] = ["table", "wide", "ndjson", "yaml", "name"];

/** `-o` of a verb that can print `formats` and prints `initial` unless told otherwise. */
export function outputOption(formats: readonly Format[], initial: Format): OptionSpec<Format> {
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
