/** Flags and image of `dsec run` for a sandbox in which real programs run. */
export const sandboxFlags: readonly string[] = ["--engine", "runc", "busybox"];
