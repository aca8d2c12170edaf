import type { Running } from "../../backends/backend.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";

export type Env = Readonly<Record<string, string>>;

/** What a command gets that asks for nothing: the sandbox's wishes before the image's. */
export interface ExecDefaults {
  readonly env: Env;
  /** Absolute path inside the sandbox. */
  readonly cwd?: string;
  readonly user?: string;
}

export function execDefaults(entry: SandboxEntry, { imageDefaults }: Running): ExecDefaults {
  const { spec } = entry.record;
  // a backend that has images of its own knows theirs
  const image = imageDefaults ?? entry.prepared?.config;
  const cwd = spec.workdir ?? image?.workdir;
  const user = spec.initUser ?? image?.user;
  return {
    env: { ...image?.env, ...spec.env },
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  };
}
