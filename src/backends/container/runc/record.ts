import { z } from "zod";
import { ResourceClass } from "../../../protocol/sandbox.ts";

/** What a later daemon needs to take a sandbox up: journaled, so it changes compatibly only. */
export const RuncRecord = z.object({
  /** The agent's process on the host. */
  pid: z.int().positive(),
  /** Clock ticks since boot: tells the agent from a later process of the same id. */
  startTime: z.int().nonnegative(),
  class: ResourceClass,
  address: z.string().nullable(),
});
export type RuncRecord = z.infer<typeof RuncRecord>;
