import { readFile, rename, writeFile } from "node:fs/promises";
import { z } from "zod";
import { LayerHeat } from "../../protocol/layer.ts";

/** Layers whose heat is remembered. */
const mostLayers = 4096;

const Heats = z.record(z.string(), LayerHeat);

/** What was seen of layers' heat on this node, over restarts and for layers that are not mounted any more. */
export class HeatRecord {
  readonly #path: string;
  #heats: Map<string, LayerHeat> | undefined;
  #changed = false;
  #writing: Promise<void> = Promise.resolve();
  #next: Promise<void> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  async all(): Promise<ReadonlyMap<string, LayerHeat>> {
    this.#heats ??= await this.#read();
    return this.#heats;
  }

  /** Adds a look, which is forgotten unless it is saved. @returns it with the highest peak so far */
  async add(digest: string, sample: LayerHeat): Promise<LayerHeat> {
    this.#heats ??= await this.#read();
    const peakBytes = Math.max(sample.peakBytes, this.#heats.get(digest)?.peakBytes ?? 0);
    const heat = { ...sample, peakBytes };
    this.#heats.delete(digest);
    this.#heats.set(digest, heat);
    const [oldest] = this.#heats.keys();
    if (oldest !== undefined && this.#heats.size > mostLayers) this.#heats.delete(oldest);
    this.#changed = true;
    return heat;
  }

  /** Writes down what was added. Many that ask at once wait for one write. */
  async save(): Promise<void> {
    this.#next ??= this.#writing.then(() => {
      this.#next = undefined;
      const written = this.#write();
      this.#writing = written.catch(() => undefined);
      return written;
    });
    return this.#next;
  }

  async #write(): Promise<void> {
    if (!this.#changed) return;
    this.#changed = false;
    const partial = `${this.#path}.${process.pid}`;
    await writeFile(partial, JSON.stringify(Object.fromEntries(this.#heats ?? [])), { mode: 0o600 });
    await rename(partial, this.#path);
  }

  async #read(): Promise<Map<string, LayerHeat>> {
    try {
      return new Map(Object.entries(Heats.parse(JSON.parse(await readFile(this.#path, "utf8")))));
    } catch {
      // Never written, or by a process that was killed: it is a statistic.
      return new Map();
    }
  }
}
