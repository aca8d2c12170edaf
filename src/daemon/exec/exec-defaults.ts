import type { Running } from "../../backends/backend.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";

export type Env = Readonly<Record<string, string>>;

/** What a command gets that asks for nothing: the sandbox's wishes before the node's, those before the image's. */
export interface ExecDefaults {
  readonly env: Env;
  /** Absolute path inside the sandbox. */
  readonly cwd?: string;
  readonly user?: string;
}

/** What a node adds to the environment of what runs in a sandbox. */
export type NodeEnvironment = (entry: SandboxEntry) => Env;

/** Where commands start that do not say it: absolute path inside the sandbox. */
export function defaultDirectory(
  { record, prepared }: SandboxEntry,
  imageDefaults: Running["imageDefaults"],
): string | undefined {
  return record.spec.workdir ?? (imageDefaults ?? prepared?.config)?.workdir;
}

export function execDefaults(
  entry: SandboxEntry,
  { imageDefaults }: Running,
  nodeEnvironment: NodeEnvironment,
): ExecDefaults {
  const { spec } = entry.record;
  // a backend that has images of its own knows theirs
  const image = imageDefaults ?? entry.prepared?.config;
  const cwd = defaultDirectory(entry, imageDefaults);
  const user = spec.initUser ?? image?.user;
  return {
    env: { ...image?.env, ...nodeEnvironment(entry), ...spec.env },
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  };
}
