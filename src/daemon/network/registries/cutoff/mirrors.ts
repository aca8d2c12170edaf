import type { Worker } from "node:worker_threads";
import { DSecError } from "../../../../protocol/errors.ts";
import { endThread, startThread } from "../../../thread.ts";
import type { MirrorPlan, MirrorReply, MirrorRequest } from "./mirror-worker.ts";

interface Pending {
  readonly resolve: (reply: MirrorReply) => void;
  readonly reject: (error: Error) => void;
}

/** MiB of the thread's heap: taking apart the largest document takes several times its size. */
const heapMb = 1024;

/** The mirrors of the registries with a cut-off, in a thread that is there once one is asked for. */
export class Mirrors {
  readonly #pending: Pending[] = [];
  readonly #served = new Map<string, { readonly key: string; readonly port: number }>();
  readonly #lost: (error: Error) => void;
  #worker: Worker | undefined;

  /** @param lost called when the mirrors have ended by themselves */
  constructor(lost: (error: Error) => void) {
    this.#lost = lost;
  }

  /**
   * Serves a registry, in place of what was served under its name; one that is served so already goes on undisturbed.
   * @returns its port
   * @throws DSecError `backend_unavailable`
   */
  async serve(plan: MirrorPlan): Promise<number> {
    const { port: wanted, ...content } = plan;
    const key = JSON.stringify(content);
    const known = this.#served.get(plan.name);
    if (known?.key === key && (wanted === 0 || wanted === known.port)) return known.port;
    this.#served.delete(plan.name);
    const { port, failure } = await this.#ask({ type: "serve", plan });
    if (port !== undefined) {
      this.#served.set(plan.name, { key, port });
      return port;
    }
    throw new DSecError("backend_unavailable", `the cut-off of ${plan.name} cannot be served`, {
      cause: new Error(failure),
    });
  }

  async end(name: string): Promise<void> {
    this.#served.delete(name);
    if (this.#worker !== undefined) await this.#ask({ type: "end", name });
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    if (worker !== undefined) await endThread(worker);
  }

  async #ask(request: MirrorRequest): Promise<MirrorReply> {
    const worker = (this.#worker ??= this.#start());
    return new Promise<MirrorReply>((resolve, reject) => {
      this.#pending.push({ resolve, reject });
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
      worker.postMessage(request);
    });
  }

  #start(): Worker {
    const worker = startThread("./mirror-worker", import.meta.url, {
      name: "registry mirrors",
      limits: { maxOldGenerationSizeMb: heapMb },
    });
    let failure = new Error("the thread of the registry mirrors ended");
    worker.on("message", (reply: MirrorReply) => this.#pending.shift()?.resolve(reply));
    worker.on("error", (error) => {
      failure = error instanceof Error ? error : new Error(String(error));
    });
    worker.on("exit", () => {
      this.#served.clear();
      for (const { reject } of this.#pending.splice(0)) reject(failure);
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      this.#lost(failure);
    });
    return worker;
  }
}
