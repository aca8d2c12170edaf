import { fork, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { DSecError } from "../../protocol/errors.ts";
import { fromProblem } from "../../protocol/problem-codec.ts";
import { systemClock, type Clock } from "../clock.ts";
import type { StoreReply, StoreRequest } from "./store-child.ts";
import type { NodeStoreOptions, StoreOperation, StoreOperations } from "./store-operations.ts";

interface Call {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
  disarm: () => void;
}

export interface StoreProcessParts {
  readonly clock?: Clock;
  /** In [0, 1). */
  readonly random?: () => number;
  /** Milliseconds without an answer or progress until the store is taken for gone. */
  readonly patienceMs?: number;
}

/** Longer than a busy store takes for a look-up, shorter than a client waits for its sandbox. */
const usualPatienceMs = 15_000;
/** For a process to be ready. */
const startMs = 60_000;
const firstPauseMs = 1000;
const longestPauseMs = 30_000;
/** Killed processes that the kernel has not let go of yet, with which no further one is started. */
const mostStuck = 3;

/**
 * Does {@link StoreOperations} in a process of its own. The daemon's event loop and its few threads for files must not wait for a store
 * that does not answer. When a call takes too long the process is killed, all calls fail, and for a while further ones do
 * at once; then one is let through to see whether the store is back.
 */
export class StoreProcess {
  readonly #options: NodeStoreOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #patienceMs: number;
  readonly #calls = new Map<number, Call>();
  readonly #stuck = new Set<ChildProcess>();
  #child: ChildProcess | undefined;
  #ready = false;
  #lastId = 0;
  #failures = 0;
  #pausedUntil = 0;
  #closed = false;

  constructor(options: NodeStoreOptions, parts: StoreProcessParts = {}) {
    this.#options = options;
    this.#clock = parts.clock ?? systemClock;
    this.#random = parts.random ?? Math.random;
    this.#patienceMs = parts.patienceMs ?? usualPatienceMs;
  }

  /** @throws DSecError those of the operation; `layer_store_unavailable` when the store does not answer */
  async call<O extends StoreOperation>(
    operation: O,
    ...[argument]: Parameters<StoreOperations[O]>
  ): Promise<Awaited<ReturnType<StoreOperations[O]>>> {
    this.#refuseWhileAway();
    const child = this.#start();
    const id = ++this.#lastId;
    const result = new Promise<unknown>((resolve, reject) => {
      this.#calls.set(id, { resolve, reject, disarm: this.#arm() });
    });
    child.ref();
    child.channel?.ref();
    child.send({ id, operation, argument } satisfies StoreRequest, (error) => {
      if (error !== null) this.#drop(child, error);
    });
    try {
      return (await result) as Awaited<ReturnType<StoreOperations[O]>>;
    } finally {
      this.#calls.get(id)?.disarm();
      this.#calls.delete(id);
      if (this.#calls.size === 0) {
        child.unref();
        child.channel?.unref();
      }
    }
  }

  /** Ends the process. Calls that are under way fail. */
  close(): void {
    this.#closed = true;
    const child = this.#child;
    if (child === undefined) return;
    this.#child = undefined;
    child.kill("SIGKILL");
    this.#failCalls(new DSecError("cancelled", "the daemon is closing"));
  }

  #refuseWhileAway(): void {
    if (this.#closed) throw new DSecError("cancelled", "the daemon is closing");
    const left = this.#pausedUntil - this.#clock.now();
    const probing = this.#failures > 0 && this.#calls.size > 0;
    if (left > 0 || probing || this.#stuck.size >= mostStuck)
      throw this.#unavailable(new Error("it did not answer a moment ago"), Math.max(left, firstPauseMs));
  }

  #start(): ChildProcess {
    if (this.#child !== undefined) return this.#child;
    // From source it is a .ts file, as built a .js file.
    const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
    const program = fileURLToPath(new URL(`./store-child${extension}`, import.meta.url));
    const child = fork(program, [JSON.stringify(this.#options)], {
      // Not the daemon's: they may be for its script alone.
      execArgv: ["--max-old-space-size=96"],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    child.on("message", (reply: StoreReply) => this.#answered(reply));
    child.on("error", (error) => this.#drop(child, error));
    child.on("exit", (code, signal) => {
      this.#stuck.delete(child);
      this.#drop(child, new Error(`its process ended with ${code ?? signal}`));
    });
    this.#child = child;
    this.#ready = false;
    return child;
  }

  #answered(reply: StoreReply): void {
    this.#ready = true;
    if (reply.type === "progress") {
      for (const call of this.#calls.values()) {
        call.disarm();
        call.disarm = this.#arm();
      }
      return;
    }
    this.#failures = 0;
    const call = this.#calls.get(reply.id);
    if (reply.type === "done") call?.resolve(reply.result);
    else call?.reject(fromProblem(reply.problem));
  }

  #arm(): () => void {
    const ms = this.#ready ? this.#patienceMs : startMs;
    return this.#clock.after(ms, () => {
      const child = this.#child;
      if (child !== undefined) this.#drop(child, new Error(`it did not answer for ${ms / 1000} s`));
    });
  }

  /** Gives a process up, and waits a while before the next one. */
  #drop(child: ChildProcess, reason: Error): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    if (child.exitCode === null && child.signalCode === null) {
      this.#stuck.add(child);
      child.kill("SIGKILL");
      child.unref();
    }
    const pause = Math.min(firstPauseMs * 2 ** this.#failures, longestPauseMs) * (0.5 + this.#random() / 2);
    this.#failures += 1;
    this.#pausedUntil = this.#clock.now() + pause;
    this.#failCalls(this.#unavailable(reason, pause));
  }

  #failCalls(error: DSecError): void {
    for (const { reject, disarm } of this.#calls.values()) {
      disarm();
      reject(error);
    }
    this.#calls.clear();
  }

  #unavailable(cause: Error, retryAfterMs: number): DSecError {
    return new DSecError(
      "layer_store_unavailable",
      `the layer store ${this.#options.directory} does not answer`,
      { cause, retryAfterMs: Math.ceil(retryAfterMs) },
    );
  }
}
