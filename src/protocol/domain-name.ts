import { DSecError } from "./errors.ts";

const longestName = 253;
const label = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;

/**
 * A DNS name in the one form in which names are compared: lower case, no final dot, other scripts in their ASCII form (`xn--`).
 * @returns undefined for what is no name, and for addresses
 */
export function canonicalName(text: string): string | undefined {
  const ascii = toAscii(text.endsWith(".") ? text.slice(0, -1) : text)?.toLowerCase();
  if (ascii === undefined || ascii.length > longestName) return undefined;
  const labels = ascii.split(".");
  if (!labels.every((part) => label.test(part))) return undefined;
  // a name whose last label is a number is an address to some programs
  return /^(?:\d+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? "") ? undefined : ascii;
}

/**
 * The domain of a rule: `example.com`, or `*.example.com` for every name below it.
 * @returns in the form of {@link canonicalName}
 * @throws DSecError `invalid_argument` saying what is wrong with it
 */
export function canonicalDomain(text: string): string {
  const wildcard = text.startsWith("*.");
  const rest = wildcard ? text.slice(2) : text;
  if (rest.includes("*"))
    throw new DSecError(
      "invalid_argument",
      `'${text}' is no domain: '*' can only stand for everything below a name, as in *.example.com`,
    );
  const name = canonicalName(rest);
  if (name === undefined)
    throw new DSecError(
      "invalid_argument",
      `'${text}' is no domain: it must be like example.com or *.example.com`,
    );
  return wildcard ? `*.${name}` : name;
}

/** The host parser of URLs knows IDNA; it must see names only, because it reads much else as addresses. */
function toAscii(text: string): string | undefined {
  if (/^[\x21-\x7e]*$/.test(text)) return text;
  if (/[\p{Cc}\s/\\?#@:[\]%<>^|]/u.test(text)) return undefined;
  const url = `http://${text}`;
  return URL.canParse(url) ? new URL(url).hostname : undefined;
}
