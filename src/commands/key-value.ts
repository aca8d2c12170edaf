import { DSecError } from "../protocol/errors.ts";

/** Reads `key=value`; the value may be empty and may contain `=`. @throws DSecError `invalid_argument` */
export function parseKeyValue(text: string): readonly [key: string, value: string] {
  const equals = text.indexOf("=");
  if (equals < 1) throw new DSecError("invalid_argument", `${JSON.stringify(text)} is not key=value`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}

/**
 * Reads an environment setting as docker does: `NAME=value`, or `NAME` for the value it has here; undefined when it has none.
 */
export function parseEnvSetting(
  text: string,
  environment: Readonly<Record<string, string | undefined>>,
): readonly [name: string, value: string] | undefined {
  if (text.includes("=")) return parseKeyValue(text);
  if (text === "") throw new DSecError("invalid_argument", `"" is not NAME=value`);
  const value = environment[text];
  return value === undefined ? undefined : [text, value];
}

/** Reads an env file as docker does: a setting a line, verbatim; empty lines and lines that begin with `#` do not count. */
export function parseEnvFile(
  content: string,
  environment: Readonly<Record<string, string | undefined>>,
): (readonly [name: string, value: string])[] {
  return content
    .split(/\r?\n/)
    .map((line) => line.trimStart())
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => parseEnvSetting(line, environment))
    .filter((setting) => setting !== undefined);
}
