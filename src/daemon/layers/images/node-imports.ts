import { fork, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { DSecError } from "../../../protocol/errors.ts";
import { fromProblem } from "../../../protocol/problem-codec.ts";
import type { Problem } from "../../../protocol/problem.ts";
import type { Clock } from "../../clock.ts";
import { Semaphore } from "../../semaphore.ts";
import type { ImportProgress } from "./image-import.ts";

/** What an import's process is told. */
export interface ImportTask {
  readonly source: string;
  readonly layerStore: string;
  /** Whether the store is made where it is not there. */
  readonly create: boolean;
  readonly directory: string;
  readonly dockerSocket?: string;
}

export type ImportReply =
  | { readonly type: "progress"; readonly progress: ImportProgress }
  | { readonly type: "done" }
  | { readonly type: "failed"; readonly problem: Problem };

export interface NodeImportsOptions extends Omit<ImportTask, "source"> {
  readonly clock: Clock;
}

type Listener = (progress: ImportProgress) => void;

interface Flight {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  readonly listeners: Set<Listener>;
}

/** Imports at a time: more would only share the same disk and processors. */
const concurrent = 2;
/** Milliseconds that a cancelled import gets to remove what it has begun. */
const graceMs = 10_000;
/** Milliseconds between two reports of progress. */
const reportMs = 500;

/** The imports that sandboxes of this node ask for: each image once, however many wait for it, in a process of its own. */
export class NodeImports {
  readonly #options: NodeImportsOptions;
  readonly #flights = new Map<string, Flight>();
  readonly #slots = new Semaphore(concurrent);

  constructor(options: NodeImportsOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the image is in the store. When nobody waits for it any more it is given up; what was fetched is kept.
   *
   * @param source as importImage takes it
   * @throws DSecError as importImage; the signal's reason
   */
  async import(source: string, signal: AbortSignal, onProgress: Listener): Promise<void> {
    signal.throwIfAborted();
    const flight = this.#flights.get(source) ?? this.#begin(source);
    // a listener of one's own, even where several waiters pass the same function
    const listener: Listener = (progress) => onProgress(progress);
    flight.listeners.add(listener);
    const { promise: givenUp, reject } = Promise.withResolvers<never>();
    const giveUp = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      await Promise.race([flight.done, givenUp]);
    } finally {
      signal.removeEventListener("abort", giveUp);
      flight.listeners.delete(listener);
      if (flight.listeners.size === 0) {
        // whoever comes next begins anew
        if (this.#flights.get(source) === flight) this.#flights.delete(source);
        flight.abort.abort(new DSecError("cancelled", `nobody waits for ${source} any more`));
      }
    }
  }

  /** Gives up all that are under way; resolves when they have. */
  async close(): Promise<void> {
    const flights = [...this.#flights.values()];
    for (const { abort } of flights) abort.abort(new DSecError("cancelled", "the daemon is closing"));
    await Promise.allSettled(flights.map(({ done }) => done));
  }

  #begin(source: string): Flight {
    const abort = new AbortController();
    const listeners = new Set<Listener>();
    const done = this.#run(source, abort.signal, (progress) => {
      for (const listener of listeners) listener(progress);
    });
    const flight = { done, abort, listeners };
    this.#flights.set(source, flight);
    done
      .catch(() => undefined)
      .finally(() => {
        if (this.#flights.get(source) === flight) this.#flights.delete(source);
      });
    return flight;
  }

  async #run(source: string, signal: AbortSignal, report: Listener): Promise<void> {
    const release = await this.#slots.acquire(signal);
    try {
      await this.#inProcess(source, signal, report);
    } finally {
      release();
    }
  }

  async #inProcess(source: string, signal: AbortSignal, report: Listener): Promise<void> {
    const { clock, ...task } = this.#options;
    // From source it is a .ts file, as built a .js file.
    const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
    const program = fileURLToPath(new URL(`./import-child${extension}`, import.meta.url));
    const child = fork(program, [JSON.stringify({ ...task, source } satisfies ImportTask)], {
      // Not the daemon's: they may be for its script alone.
      execArgv: ["--max-old-space-size=1024"],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    const disarmKill = this.#killOnAbort(child, signal);
    let outcome: ImportReply | undefined;
    let reportedAt = Number.NEGATIVE_INFINITY;
    let phase: string | undefined;
    child.on("message", (reply: ImportReply) => {
      if (reply.type !== "progress") outcome = reply;
      else if (reply.progress.phase !== phase || clock.now() - reportedAt >= reportMs) {
        phase = reply.progress.phase;
        reportedAt = clock.now();
        report(reply.progress);
      }
    });
    const end = await new Promise<string>((resolve) => {
      child.on("error", (error) => resolve(error.message));
      child.on("exit", (code, killedBy) => resolve(String(code ?? killedBy)));
    });
    disarmKill();
    if (signal.aborted) throw signal.reason;
    if (outcome?.type === "failed") throw fromProblem(outcome.problem);
    if (outcome === undefined)
      throw new DSecError("internal", `the import of ${source} failed`, {
        cause: new Error(`its process ended: ${end}`),
      });
  }

  #killOnAbort(child: ChildProcess, signal: AbortSignal): () => void {
    let disarm: () => void = () => undefined;
    const kill = (): void => {
      child.kill("SIGTERM");
      disarm = this.#options.clock.after(graceMs, () => child.kill("SIGKILL"));
    };
    signal.addEventListener("abort", kill, { once: true });
    return () => {
      signal.removeEventListener("abort", kill);
      disarm();
    };
  }
}
