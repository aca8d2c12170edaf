/**
 * The process that imports one image for a daemon: unpacking takes a processor for a while, and a store on a network may not
 * answer. It ends with its daemon's channel, and then removes what it has begun.
 */
import { setPriority } from "node:os";
import { toProblem } from "../../../protocol/problem-codec.ts";
import { openExistingStore, openLayerStore } from "../layer-store.ts";
import { importImage } from "./image-import.ts";
import type { ImportReply, ImportTask } from "./node-imports.ts";

/** Sandboxes that run go first. */
const niceness = 10;

const { source, layerStore, create, directory, dockerSocket } = JSON.parse(
  process.argv[2] ?? "",
) as ImportTask;
const cancel = new AbortController();
for (const event of ["SIGTERM", "SIGINT", "disconnect"] as const)
  process.on(event, () => cancel.abort(new Error(`the import was ended by ${event}`)));

setPriority(niceness);
try {
  const store = await (create ? openLayerStore(layerStore) : openExistingStore(layerStore));
  await importImage(
    store,
    { source },
    {
      directory,
      signal: cancel.signal,
      onProgress: (progress) => reply({ type: "progress", progress }),
      ...(dockerSocket !== undefined && { dockerSocket }),
    },
  );
  reply({ type: "done" });
} catch (error) {
  reply({ type: "failed", problem: toProblem(error) });
}
if (process.connected) process.disconnect();

function reply(message: ImportReply): void {
  // the daemon may be gone
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}
