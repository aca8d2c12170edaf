import type { Worker } from "node:worker_threads";
import { DSecError } from "../../protocol/errors.ts";
import { endThread, startThread } from "../thread.ts";
import type { AddressRange } from "./address-range.ts";
import type { MadeNamespace, NamespacePlan, WorkerAnswer, WorkerRequest } from "./namespace-worker.ts";

interface Pending {
  readonly resolve: (answer: WorkerAnswer) => void;
  readonly reject: (error: Error) => void;
}

/** Has a thread of its own make and remove network namespaces and their links, in the order in which it is asked. */
export class NamespaceMaker {
  readonly #range: AddressRange;
  readonly #proxyMark: number;
  readonly #worker: Worker;
  readonly #pending: Pending[] = [];
  #ended: Error | undefined;

  /** @param proxyMark of packets for the proxy, which stay on the node */
  constructor(range: AddressRange, proxyMark: number) {
    this.#range = range;
    this.#proxyMark = proxyMark;
    this.#worker = startThread("./namespace-worker", import.meta.url, {
      name: "namespaces",
      limits: { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 4 },
    });
    this.#worker.on("message", (answer: WorkerAnswer) => this.#pending.shift()?.resolve(answer));
    this.#worker.on("error", (error) => {
      this.#end(
        new DSecError("internal", "the thread that makes network namespaces failed", { cause: error }),
      );
    });
    this.#worker.on("exit", () => this.#end(new DSecError("cancelled", "the network is closed")));
  }

  /** Gives the node its address in the range. @throws DSecError `backend_unavailable` */
  async claimRange(): Promise<void> {
    await this.#ask({ type: "claim", ...this.#rangeParts() });
  }

  async unclaimRange(): Promise<void> {
    await this.#ask({ type: "unclaim", ...this.#rangeParts() });
  }

  /** Makes namespaces; the caller closes the descriptors. */
  async make(plans: readonly NamespacePlan[]): Promise<readonly MadeNamespace[]> {
    const answer = await this.#ask({ type: "make", gateway: this.#range.gateway, plans });
    return answer.made ?? [];
  }

  /** Connects a namespace that is there; a link is left only where it is set up whole. @param namespace descriptor */
  async join(plan: NamespacePlan, namespace: number): Promise<void> {
    await this.#ask({ type: "join", gateway: this.#range.gateway, plan, namespace });
  }

  /** Removes links, and so what connects the namespaces behind them. Those that are gone are no error. */
  async deleteLinks(links: readonly string[]): Promise<void> {
    await this.#ask({ type: "delete", links });
  }

  async close(): Promise<void> {
    await endThread(this.#worker);
  }

  #rangeParts(): { gateway: string; network: string; prefixLength: number; proxyMark: number } {
    const { gateway, network, prefixLength } = this.#range;
    return { gateway, network, prefixLength, proxyMark: this.#proxyMark };
  }

  async #ask(request: WorkerRequest): Promise<WorkerAnswer> {
    if (this.#ended !== undefined) throw this.#ended;
    this.#worker.ref();
    try {
      const answer = await new Promise<WorkerAnswer>((resolve, reject) => {
        this.#pending.push({ resolve, reject });
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
        this.#worker.postMessage(request);
      });
      if (answer.failure === undefined) return answer;
      throw new DSecError("backend_unavailable", "the kernel refuses what the sandboxes' network needs", {
        cause: new Error(answer.failure.message),
      });
    } finally {
      if (this.#pending.length === 0) this.#worker.unref();
    }
  }

  #end(reason: Error): void {
    this.#ended ??= reason;
    for (const { reject } of this.#pending.splice(0)) reject(reason);
  }
}
