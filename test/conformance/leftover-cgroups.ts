import { readdirSync } from "node:fs";
import { join } from "node:path";
import { listMounts } from "../../src/backends/linux/mount.ts";

/** Control groups whose name contains one of `names`, in every hierarchy. */
export function cgroupsNamed(names: ReadonlySet<string>): string[] {
  if (names.size === 0) return [];
  return listMounts()
    .filter(({ type }) => type === "cgroup" || type === "cgroup2")
    .flatMap(({ target }) => below(target))
    .filter((path) => [...names].some((name) => path.includes(name)))
    .map((path) => `cgroup ${path}`);
}

function below(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .flatMap((entry) => [join(directory, entry.name), ...below(join(directory, entry.name))]);
  } catch {
    return [];
  }
}
