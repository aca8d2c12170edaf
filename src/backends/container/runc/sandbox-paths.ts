import { join } from "node:path";

/** Where this engine keeps what belongs to one sandbox. The daemon keeps the sandbox's root in the same directory. */
export interface SandboxPaths {
  readonly directory: string;
  readonly socket: string;
  readonly bundle: string;
  readonly config: string;
  readonly pidFile: string;
  /** What the runtime and the agent have to say when they fail. */
  readonly log: string;
  /** --root of the runtime: each sandbox has one of its own. */
  readonly state: string;
}

/** Where all sandboxes' directories are. */
export function sandboxesDirectory(runDir: string): string {
  return join(runDir, "sandboxes");
}

/** @param sandboxes of {@link sandboxesDirectory} */
export function sandboxPaths(sandboxes: string, id: string): SandboxPaths {
  const directory = join(sandboxes, id);
  const bundle = join(directory, "bundle");
  return {
    directory,
    socket: join(directory, "agent.sock"),
    bundle,
    config: join(bundle, "config.json"),
    pidFile: join(bundle, "pid"),
    log: join(bundle, "log"),
    state: join(directory, "runtime"),
  };
}
