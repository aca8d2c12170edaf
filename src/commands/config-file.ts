import { mkdir, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { ConfigFile } from "../sdk/config.ts";

/** Replaces the config file at once: a reader sees the old or the new one. */
export async function writeConfigFile(config: ConfigFile): Promise<void> {
  const { stringify } = await import("yaml");
  const { path, currentContext, contexts, common } = config;
  const content = {
    ...common,
    ...(currentContext === undefined ? {} : { "current-context": currentContext }),
    contexts,
  };
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, stringify(content), { mode: 0o600 });
  await rename(draft, path);
}
