import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../protocol/errors.ts";
import type { DSecClient } from "../sdk/client.ts";
import { note } from "./io.ts";
import { flag } from "./option.ts";
import { done } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

/** Milliseconds until the fleet's process must have ended: thousands of sandboxes may have to. */
const endMs = 120_000;
const pollMs = 50;

export const down = defineVerb({
  description:
    "Ends its sandboxes too, and leaves nothing running, as docker compose down does. With --keep sandboxes go on, and the\n" +
    "next `dsec up` takes them up again.",
  options: { keep: flag("--keep", "leave the sandboxes running") },
  run: async ({ io, client, settings }, { keep }) => {
    const { address, runDir } = await settings();
    if (!address.startsWith("unix:"))
      throw new DSecError(
        "invalid_argument",
        `down ends the fleet of this machine, and ${address} is another`,
      );
    try {
      const fleet = await client();
      await fleet.shutdown({ sandboxes: keep ? "keep" : "stop" });
      await untilGone(fleet);
      note(io, keep ? "the fleet is down; its sandboxes go on" : "the fleet is down");
    } catch (error) {
      if (!(error instanceof DSecError) || error.code !== "coordinator_unreachable") throw error;
      note(io, "no fleet runs here");
      const left = await readdir(join(runDir, "sandboxes")).catch(() => []);
      if (left.length > 0)
        note(
          io,
          `${left.length} sandboxes of an earlier one are left: \`dsec up -d\`, then \`dsec down\`, ends them`,
        );
    }
    return done;
  },
});

/** The coordinator's socket is the last thing to go. */
async function untilGone(fleet: DSecClient): Promise<void> {
  const signal = AbortSignal.timeout(endMs);
  while (!signal.aborted) {
    try {
      await fleet.version({ signal });
    } catch (error) {
      if (signal.aborted) break;
      if (error instanceof DSecError && error.code === "coordinator_unreachable") return;
      if (!(error instanceof DSecError) || error.code !== "connection_lost") throw error;
    }
    await delay(pollMs);
  }
  throw new DSecError("exec_timeout", `the fleet has not ended after ${endMs / 1000} s`, { ambiguous: true });
}
