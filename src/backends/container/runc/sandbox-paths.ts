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
  /** The runtime's own state. */
  readonly state: string;
}

export interface RunDirectory {
  readonly sandboxes: string;
  /** --root of the runtime. */
  readonly states: string;
}

export function runDirectory(runDir: string): RunDirectory {
  return { sandboxes: join(runDir, "sandboxes"), states: join(runDir, "runc") };
}

export function sandboxPaths(run: RunDirectory, id: string): SandboxPaths {
  const directory = join(run.sandboxes, id);
  const bundle = join(directory, "bundle");
  return {
    directory,
    socket: join(directory, "agent.sock"),
    bundle,
    config: join(bundle, "config.json"),
    pidFile: join(bundle, "pid"),
    log: join(bundle, "log"),
    state: join(run.states, id),
  };
}
