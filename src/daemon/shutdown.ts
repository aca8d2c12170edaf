import { DSecError } from "../protocol/errors.ts";
import type { WireServer } from "../wire/server/server.ts";
import type { Daemon } from "./assembly.ts";
import { mapBounded } from "./bounded.ts";
import { within } from "./within.ts";

const parallel = 16;
/** Milliseconds that starts and ends which are under way get. */
const graceMs = 10_000;

/** Takes nothing new, ends the sandboxes if told to, lets starts and ends that are under way finish, and stops listening. */
export async function shutDown(daemon: Daemon, server: WireServer, stopSandboxes: boolean): Promise<void> {
  const { sandboxes, ending, clock, gate, ports, execs } = daemon;
  daemon.cordon();
  if (stopSandboxes)
    await mapBounded(sandboxes.live(), parallel, async (entry) =>
      ending.stop(entry, "stopped", "the daemon was told to stop its sandboxes"),
    );
  const starting = sandboxes.live().flatMap(({ start }) => start ?? []);
  const started = Promise.allSettled(starting.map(async ({ done }) => done));
  if ((await within(clock, graceMs, started)) === "late") {
    for (const start of starting) start.abort(new DSecError("cancelled", "the daemon is shutting down"));
    await within(clock, graceMs, started);
  }
  const stopping = sandboxes.live().filter(({ record }) => record.state === "stopping");
  await within(clock, graceMs, Promise.all(stopping.map(async ({ ended }) => ended)));
  gate.close();
  ports.close();
  execs.close();
  await server.close();
}
