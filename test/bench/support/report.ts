import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { machine } from "./measure.ts";

/** A benchmark's result: titled tables of strings, printed and kept as one page under docs/bench/. */
export class Report {
  readonly #title: string;
  readonly #parts: string[] = [];

  constructor(title: string) {
    this.#title = title;
  }

  table(title: string, columns: readonly string[], rows: readonly (readonly string[])[]): void {
    const lines = [columns, columns.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`);
    const part = `## ${title}\n\n${lines.join("\n")}\n`;
    this.#parts.push(part);
    process.stdout.write(`\n${part}`);
  }

  /** Markdown, as it is. */
  text(markdown: string): void {
    this.#parts.push(`${markdown}\n`);
    process.stdout.write(`\n${markdown}\n`);
  }

  /** Writes the page `docs/bench/<name>.md`, and beside it the pictures that it shows, by file name. */
  async save(name: string, command: string, pictures: Readonly<Record<string, string>> = {}): Promise<void> {
    const path = join(import.meta.dirname, "../../../docs/bench", `${name}.md`);
    const head = `# ${this.#title}\n\nMeasured in one run by \`${command}\` on ${machine()}.\n`;
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, `${head}\n${this.#parts.join("\n")}`);
    for (const [file, content] of Object.entries(pictures))
      await writeFile(join(dirname(path), file), content);
  }
}

export const fixed = (value: number, digits = 1): string => value.toFixed(digits);
export const times = (value: number): string => `${value.toFixed(value < 10 ? 1 : 0)}×`;
