import { styleText } from "node:util";

/** What a colour says; which colour says it is decided here alone. */
export type Tone = "good" | "active" | "warning" | "bad" | "muted" | "heading";

const styles = {
  good: "green",
  active: "cyan",
  warning: "yellow",
  bad: "red",
  muted: "dim",
  heading: "bold",
} as const satisfies Record<Tone, Parameters<typeof styleText>[0]>;

export type Paint = (text: string, tone: Tone | undefined) => string;

export function painter(colors: boolean): Paint {
  return (text, tone) =>
    colors && tone !== undefined ? styleText(styles[tone], text, { validateStream: false }) : text;
}

/** Whether colours are wanted: on a terminal, unless NO_COLOR (https://no-color.org) or a dumb terminal says otherwise. */
export function wantsColors(
  terminal: boolean,
  environment: Readonly<Record<string, string | undefined>>,
): boolean {
  return terminal && (environment["NO_COLOR"] ?? "") === "" && environment["TERM"] !== "dumb";
}
