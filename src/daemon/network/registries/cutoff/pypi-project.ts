/** What a Python index tells of a project (PEP 503, 691, 700), as it was at a point in time. */
import { DSecError } from "../../../../protocol/errors.ts";
import { isObject, type JsonObject, objectOf, textOf } from "./json-object.ts";

export interface Project {
  /** In the form of PEP 691, without what needs more than version 1.0 of it. */
  readonly document: JsonObject;
  /** Where each visible file is to be had upstream, by its name; those of its metadata (PEP 658) among them. */
  readonly files: ReadonlyMap<string, string>;
}

/**
 * Leaves out files that were uploaded after `cutoff`, and those of which the index says nothing of when.
 *
 * @param indexUrl what the files' URLs are relative to
 * @param fileUrl where the file of that name will be offered
 * @returns undefined where nothing of the project had been uploaded
 * @throws DSecError `protocol_error` where the index does not tell when files were uploaded
 */
export function projectAt(
  upstream: unknown,
  cutoff: number,
  indexUrl: string,
  fileUrl: (file: string) => string,
): Project | undefined {
  const whole = objectOf(upstream);
  const all = Array.isArray(whole["files"]) ? whole["files"].filter(isObject) : [];
  if (all.length > 0 && all.every((file) => textOf(file["upload-time"]) === undefined))
    throw new DSecError("protocol_error", "the index does not tell when files were uploaded (PEP 700)");
  const files = new Map<string, string>();
  const visible: JsonObject[] = [];
  for (const file of all) {
    // Neither is a date that cannot be read.
    if (!(Date.parse(textOf(file["upload-time"]) ?? "") <= cutoff)) continue;
    const name = textOf(file["filename"]) ?? "";
    const source = URL.parse(textOf(file["url"]) ?? "", indexUrl);
    if (!/^[A-Za-z0-9._+!-]{1,255}$/.test(name) || source === null) continue;
    source.hash = "";
    files.set(name, source.href);
    if (hasMetadata(file)) {
      const metadata = new URL(source);
      metadata.pathname += ".metadata";
      files.set(`${name}.metadata`, metadata.href);
    }
    visible.push({ ...file, url: fileUrl(name) });
  }
  if (visible.length === 0) return undefined;
  return { document: { meta: { "api-version": "1.0" }, name: whole["name"], files: visible }, files };
}

/** The same as a page of links, for older clients. */
export function projectPage({ document }: Project): string {
  const files = Array.isArray(document["files"]) ? document["files"].filter(isObject) : [];
  const links = files.map((file) => {
    const [algorithm, digest] = Object.entries(objectOf(file["hashes"])).find(([, value]) => value) ?? [];
    const hash = algorithm === undefined ? "" : `#${algorithm}=${String(digest)}`;
    const metadata = Object.entries(objectOf(file["core-metadata"] ?? file["dist-info-metadata"]))[0];
    const attributes: (readonly [string, string | undefined])[] = [
      ["href", `${textOf(file["url"]) ?? ""}${hash}`],
      ["data-requires-python", textOf(file["requires-python"])],
      ["data-yanked", file["yanked"] === true ? "" : textOf(file["yanked"])],
      ["data-core-metadata", metadata === undefined ? undefined : `${metadata[0]}=${String(metadata[1])}`],
    ];
    const written = attributes.flatMap(([key, value]) =>
      value === undefined ? [] : [`${key}="${escape(value)}"`],
    );
    return `<a ${written.join(" ")}>${escape(textOf(file["filename"]) ?? "")}</a><br>`;
  });
  return `<!DOCTYPE html>\n<html><body>\n${links.join("\n")}\n</body></html>\n`;
}

/** The form in which names of projects are compared (PEP 503); undefined for what is no name. */
export function projectName(text: string): string | undefined {
  if (!/^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$/.test(text)) return undefined;
  return text.replaceAll(/[-_.]+/g, "-").toLowerCase();
}

function hasMetadata(file: JsonObject): boolean {
  const told = file["core-metadata"] ?? file["dist-info-metadata"];
  return told === true || (isObject(told) && Object.keys(told).length > 0);
}

function escape(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll('"', "&quot;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;");
}
