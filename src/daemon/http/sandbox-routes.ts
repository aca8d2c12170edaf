import type { Sandbox } from "../../protocol/sandbox.ts";
import type { WireServer } from "../../wire/server/server.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { Activity } from "../deadlines/activity.ts";
import type { Clock } from "../clock.ts";
import type { Ending } from "../lifecycle/ending.ts";
import { listSandboxes } from "../views/listing.ts";
import { reclaim } from "../deadlines/reclaim.ts";
import type { SandboxNetworks } from "../network/policy/sandbox-networks.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import type { Starting } from "../lifecycle/starting.ts";
import { updateSandbox } from "../lifecycle/update.ts";
import { usageOf } from "../views/usage.ts";

export interface SandboxRouteParts {
  readonly clock: Clock;
  readonly sandboxes: Sandboxes;
  readonly starting: Starting;
  readonly ending: Ending;
  readonly activity: Activity;
  readonly networks: Pick<SandboxNetworks, "counters">;
}

/** The routes that create, show, change and end sandboxes. */
export function serveSandboxes(server: WireServer, parts: SandboxRouteParts): void {
  const { clock, sandboxes, starting, ending, activity, networks } = parts;
  /** Of one sandbox; waits until it was taken up after a restart. */
  const adopted = async (ref: string): Promise<SandboxEntry> => {
    const entry = sandboxes.find(ref);
    if (entry.adoption !== undefined) await entry.adoption;
    return entry;
  };
  const withUsage = async (entry: SandboxEntry): Promise<Sandbox> => {
    const usage = await usageOf(entry);
    const networkCounters = networks.counters(entry);
    return {
      ...sandboxes.viewOf(entry),
      ...(usage === undefined ? {} : { usage }),
      ...(networkCounters === undefined ? {} : { networkCounters }),
    };
  };

  server.handle("placeSandbox", async ({ params, body }) => {
    if (body.id !== params.id)
      throw new DSecError("invalid_argument", `id: ${body.id} is not the one in the path, ${params.id}`);
    return sandboxes.viewOf(await starting.place(body));
  });
  server.handle("listSandboxes", async ({ query }) => listSandboxes(sandboxes, query));
  server.handle("getSandbox", async ({ params }) => withUsage(await adopted(params.ref)));
  server.handle("updateSandbox", async ({ params, body }) => {
    const entry = sandboxes.find(params.ref);
    await updateSandbox(sandboxes, entry, body);
    return sandboxes.viewOf(entry);
  });
  server.handle("removeSandbox", async ({ params }) => ending.remove(sandboxes.find(params.ref)));
  server.handle("stopSandbox", async ({ params, body }) => {
    const entry = sandboxes.find(params.ref);
    await ending.stop(entry, body.reason, `${body.reason} by request`);
    return sandboxes.viewOf(entry);
  });
  server.handle("touchSandbox", async ({ params, body }) => {
    const entry = await adopted(params.ref);
    activity.touch(entry, body.ttlRunningStop);
    return sandboxes.viewOf(entry);
  });
  server.handle("waitSandbox", async ({ params, query, signal }) => {
    const entry = sandboxes.find(params.ref);
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const dispose = clock.after(query.timeoutMs, resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
    await Promise.race([entry.ended, over]);
    dispose();
    return sandboxes.viewOf(entry);
  });
  server.handle("reclaim", async ({ body }) => reclaim({ sandboxes, ending, now: () => clock.now() }, body));
}
