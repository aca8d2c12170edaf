import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DSecError } from "../../../protocol/errors.ts";
import { findProgram, runProgram } from "../../resources/program.ts";
import { readAptConfiguration } from "./apt-sources.ts";
import type { LayerSource } from "./source.ts";

const packages = ["python3", "git", "curl", "ca-certificates", "procps"];

/** What no sandbox reads; copyright files stay, as their licences ask. */
const excluded = [
  "path-exclude=/usr/share/doc/*",
  "path-include=/usr/share/doc/*/copyright",
  "path-exclude=/usr/share/man/*",
  "path-exclude=/usr/share/info/*",
  "path-exclude=/usr/share/locale/*",
  "path-exclude=/usr/share/lintian/*",
];

/**
 * mmdebstrap mounts the machine's /sys and /dev/shm below the root. In namespaces of its own they, and all its processes, end
 * with it, however it ends: nobody removes a root that still leads out of itself.
 */
const isolation = [
  "--mount",
  "--propagation=private",
  "--pid",
  "--fork",
  "--kill-child=SIGKILL",
  "--mount-proc",
  "--",
];

/** Debian with what agents expect (python3, git, curl…), made by mmdebstrap from where the machine's own apt gets its packages. */
export function debianSource(suite: string): LayerSource {
  if (!/^[a-z][a-z0-9-]{0,63}$/.test(suite))
    throw new DSecError("invalid_argument", `'${suite.slice(0, 100)}' is not the name of a Debian suite`);
  return {
    prepare: async (into, { onProgress, signal }) => {
      const cancel = signal === undefined ? {} : { signal };
      const apt = await readAptConfiguration(suite, signal);
      const mmdebstrap = findProgram("mmdebstrap");
      if (mmdebstrap === undefined) throw new DSecError("backend_unavailable", "mmdebstrap is not installed");
      await runProgram(
        "unshare",
        [
          ...isolation,
          mmdebstrap,
          "--mode=root",
          "--format=directory",
          "--variant=minbase",
          `--include=${packages.join(",")}`,
          ...['APT::Install-Recommends "false"', 'Acquire::Languages "none"', ...apt.settings].map(
            (setting) => `--aptopt=${setting}`,
          ),
          ...excluded.map((option) => `--dpkgopt=${option}`),
          suite,
          into,
          ...(apt.sources.length > 0 ? ["-"] : []),
        ],
        {
          ...cancel,
          killSignal: "SIGKILL",
          discardOutput: true,
          ...(apt.sources.length > 0 && { input: `${apt.sources.join("\n")}\n` }),
          onErrorLine: (line) => {
            if (line.startsWith("I: ")) onProgress?.(line.slice(3));
          },
        },
      );
      await tidy(into);
      return into;
    },
    origin: async () => ({ from: `debian:${suite}` }),
  };
}

/** Takes away what is the building machine's own, and what must differ from sandbox to sandbox. */
async function tidy(root: string): Promise<void> {
  const list = join(root, "etc/apt/sources.list");
  // Sandboxes run other people's code: no password of a mirror or proxy may go along.
  await writeFile(list, (await readFile(list, "utf8")).replaceAll(/:\/\/[^/@\s]*@/g, "://"));
  const aptSettings = join(root, "etc/apt/apt.conf.d/99mmdebstrap");
  const kept = (await readFile(aptSettings, "utf8").catch(() => ""))
    .split("\n")
    .filter((line) => !/proxy/i.test(line));
  await writeFile(aptSettings, kept.join("\n"));
  for (const folder of ["var/log", "var/cache/apt", "var/cache/debconf", "var/lib/apt/lists"]) {
    await removeFiles(join(root, folder));
  }
  await writeFile(join(root, "etc/hostname"), "sandbox\n");
  await writeFile(join(root, "etc/machine-id"), "");
  await writeFile(join(root, "etc/resolv.conf"), "");

  await writeFile(
    join(root, "etc/hosts"),
    "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
  );
}

/** Folders stay: apt and others do not make theirs anew. */
async function removeFiles(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isDirectory()) await rm(join(entry.parentPath, entry.name), { force: true });
  }
}
