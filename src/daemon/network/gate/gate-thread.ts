import type { Worker } from "node:worker_threads";
import { closeDescriptor } from "../../../backends/linux/libc.ts";
import { DSecError } from "../../../protocol/errors.ts";
import { endThread, startThread } from "../../thread.ts";
import type { NetworkProbe, NetworkProbeResult } from "../../../protocol/network-decision.ts";
import type { CompiledPolicy } from "../policy/compile.ts";
import type { GateReport } from "./decision-batch.ts";
import type { Attachment } from "./gate.ts";
import type { GateAnswer, GateMessage, GateRequest, GateResult, GateSettings } from "./gate-messages.ts";

type WithoutNumber<T> = T extends unknown ? Omit<T, "number"> : never;

/** Policies kept there that no sandbox has. */
const mostUnused = 64;

/** The gate's thread, as the daemon speaks to it. It carries out what it is asked in the order in which it is asked. */
export class GateThread {
  readonly #worker: Worker;
  readonly #pending = new Map<number, PromiseWithResolvers<GateResult>>();
  readonly #policies = new Map<CompiledPolicy, { readonly number: number; users: number }>();
  /** Those that no sandbox has, the oldest first: the next sandbox of a job wants what the last one had. */
  readonly #unused = new Set<CompiledPolicy>();
  readonly #ready = Promise.withResolvers<void>();
  #descriptors: readonly number[] = [];
  #next = 1;
  #ended: DSecError | undefined;

  /** @param ended called when the thread has ended without {@link close} */
  constructor(
    settings: GateSettings,
    reported: (report: GateReport) => void,
    ended: (reason: Error) => void,
  ) {
    this.#worker = startThread("./gate-worker", import.meta.url, {
      name: "gate",
      data: settings,
      limits: { maxOldGenerationSizeMb: 1024 },
    });
    this.#ready.promise.catch(() => undefined);
    this.#worker.on("message", (answer: GateAnswer) => {
      if (answer.type === "report") reported(answer.report);
      else this.#take(answer);
    });
    let failure: Error | undefined;
    this.#worker.on("error", (error) => (failure = error));
    this.#worker.on("exit", () => {
      const isWanted = this.#ended !== undefined;
      this.#end(
        new DSecError("backend_unavailable", "the sandboxes' way to the network is interrupted", {
          cause: failure,
        }),
      );
      if (isWanted) return;
      // The group of the log would be taken for ever, and no thread could follow.
      for (const fd of this.#descriptors) closeDescriptor(fd);
      ended(failure ?? new Error("the thread has ended"));
    });
  }

  /** @throws DSecError `backend_unavailable` when it cannot do its work here */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  get hasEnded(): boolean {
    return this.#ended !== undefined;
  }

  async attach(attachment: Attachment, policy: CompiledPolicy): Promise<void> {
    await this.#ask({ type: "attach", attachment, policy: this.retain(policy) });
  }

  /** Returns how many connections have ended. */
  async set(id: string, policy: CompiledPolicy): Promise<number> {
    return (await this.#ask({ type: "set", id, policy: this.retain(policy) })).cut ?? 0;
  }

  async detach(id: string): Promise<void> {
    await this.#ask({ type: "detach", id });
  }

  async reconcile(): Promise<void> {
    await this.#ask({ type: "reconcile" });
  }

  async test(policy: CompiledPolicy, probe: NetworkProbe): Promise<NetworkProbeResult> {
    const number = this.retain(policy);
    try {
      const { test } = await this.#ask({ type: "test", policy: number, probe });
      if (test === undefined) throw new DSecError("internal", "the gate gave no answer");
      return test;
    } finally {
      this.release(policy);
    }
  }

  /** Has the thread keep a policy. Each {@link attach} and {@link set} does so for its sandbox. */
  retain(policy: CompiledPolicy): number {
    const known = this.#policies.get(policy);
    if (known !== undefined) {
      known.users += 1;
      this.#unused.delete(policy);
      return known.number;
    }
    const number = this.#next;
    this.#next += 1;
    this.#policies.set(policy, { number, users: 1 });
    const { names: _names, prefixes: _prefixes, ...body } = policy;
    this.#tell({ type: "policy", policy: number, body });
    return number;
  }

  /** A sandbox has a policy no more. */
  release(policy: CompiledPolicy): void {
    const known = this.#policies.get(policy);
    if (known === undefined) return;
    known.users -= 1;
    if (known.users > 0) return;
    this.#unused.add(policy);
    const [oldest] = this.#unused;
    if (this.#unused.size > mostUnused && oldest !== undefined) this.#forget(oldest);
  }

  async close(): Promise<void> {
    this.#ended ??= closed();
    await endThread(this.#worker);
  }

  async #ask(request: WithoutNumber<GateRequest>): Promise<GateResult> {
    if (this.#ended !== undefined) throw this.#ended;
    const number = this.#next;
    this.#next += 1;
    const pending = Promise.withResolvers<GateResult>();
    this.#pending.set(number, pending);
    this.#tell({ ...request, number });
    return pending.promise;
  }

  #forget(policy: CompiledPolicy): void {
    const known = this.#policies.get(policy);
    this.#unused.delete(policy);
    this.#policies.delete(policy);
    if (known !== undefined) this.#tell({ type: "forget", policy: known.number });
  }

  #tell(message: GateMessage): void {
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
    this.#worker.postMessage(message);
  }

  #take(answer: Exclude<GateAnswer, { type: "report" }>): void {
    switch (answer.type) {
      case "ready":
        if ("failure" in answer) this.#ready.reject(failed(answer.failure));
        else {
          this.#descriptors = answer.descriptors;
          this.#ready.resolve();
        }
        return;
      case "answer": {
        const pending = this.#pending.get(answer.number);
        this.#pending.delete(answer.number);
        if (answer.failure === undefined) pending?.resolve(answer.result);
        else pending?.reject(failed(answer.failure));
      }
    }
  }

  #end(reason: DSecError): void {
    this.#ended ??= reason;
    this.#ready.reject(reason);
    for (const { reject } of this.#pending.values()) reject(reason);
    this.#pending.clear();
  }
}

function failed(message: string): DSecError {
  return new DSecError(
    "backend_unavailable",
    "the network of sandboxes cannot be set up as their policies say",
    {
      cause: new Error(message),
    },
  );
}

function closed(): DSecError {
  return new DSecError("cancelled", "the network is closed");
}
