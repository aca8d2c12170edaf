import type { SandboxState } from "./sandbox.ts";

/** States in which nothing runs any more and only the record is left. */
export const endedStates: readonly SandboxState[] = ["stopped", "failed", "lost"];
