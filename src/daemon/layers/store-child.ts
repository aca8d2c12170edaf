/**
 * The process that touches the layer store for a daemon: a store on a network may stop answering, and whoever asks it then waits in
 * the kernel. Its daemon kills it when that takes too long. It ends with its daemon's channel.
 */
import type { Problem } from "../../protocol/problem.ts";
import { toProblem } from "../../protocol/problem-codec.ts";
import { NodeStore } from "./node-store.ts";
import type { NodeStoreOptions, StoreOperation } from "./store-operations.ts";

export interface StoreRequest {
  readonly id: number;
  readonly operation: StoreOperation;
  readonly argument: string | undefined;
}

export type StoreReply =
  /** It is ready to work, or bytes arrive: it is not the store that makes a call last. */
  | { readonly type: "progress" }
  | { readonly type: "done"; readonly id: number; readonly result?: unknown }
  | { readonly type: "failed"; readonly id: number; readonly problem: Problem };

const options = JSON.parse(process.argv[2] ?? "") as NodeStoreOptions;
const store = new NodeStore(options, () => reply({ type: "progress" }));

// They are the daemon's, which still needs this process to unmount.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => undefined);
process.on("disconnect", () => process.exit());
process.on("message", (request: StoreRequest) => void answer(request));
reply({ type: "progress" });

async function answer({ id, operation, argument }: StoreRequest): Promise<void> {
  try {
    // The daemon's side sees to it that operation and argument belong together.
    const run = store[operation].bind(store) as (argument: string | undefined) => Promise<unknown>;
    reply({ type: "done", id, result: await run(argument) });
  } catch (error) {
    reply({ type: "failed", id, problem: toProblem(error) });
  }
}

function reply(message: StoreReply): void {
  // The daemon may be gone: then so is this process, in a moment.
  process.send?.(message, undefined, undefined, () => undefined);
}
