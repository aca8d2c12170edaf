/** Flags and image of `dsec run` for a sandbox in which real programs run, as far as the test needs them. */
export const sandboxFlags: readonly string[] = ["--backend", "simulated", "busybox"];
