import { chmod, mkdir } from "node:fs/promises";
import { DSecError } from "../../../protocol/errors.ts";
import { runProgram } from "../../resources/program.ts";
import { digestOfFile } from "../file-digest.ts";
import type { LayerSource } from "./source.ts";

/**
 * A root as a tar archive, compressed or not. An archive with a name that leads out of the root is refused as a whole, not
 * unpacked in part or under other names, as tar alone would.
 */
export function tarSource(archive: string): LayerSource {
  return {
    prepare: async (into, { onProgress, signal }) => {
      const cancel = signal === undefined ? {} : { signal };
      await mkdir(into);
      await chmod(into, 0o755);
      try {
        onProgress?.("reading the archive");
        await runProgram(
          "tar",
          ["--list", "--absolute-names", "--quoting-style=escape", `--file=${archive}`],
          {
            ...cancel,
            onOutputLine: refuseEscape,
          },
        );
        onProgress?.("unpacking the archive");
        await runProgram(
          "tar",
          ["--extract", `--file=${archive}`, `--directory=${into}`, ...keepEverything],
          cancel,
        );
      } catch (error) {
        if (!(error instanceof DSecError) || error.code !== "internal") throw error;
        throw new DSecError("invalid_argument", `${archive} cannot be unpacked`, { cause: error });
      }
      return into;
    },
    origin: async () => ({ from: archive, fromDigest: (await digestOfFile(archive)).digest }),
  };
}

const keepEverything = [
  "--numeric-owner",
  "--same-owner",
  "--same-permissions",
  "--xattrs",
  "--xattrs-include=*",
  "--delay-directory-restore",
];

function refuseEscape(name: string): void {
  if (name.startsWith("/") || name.split("/").includes("..")) {
    throw new DSecError(
      "invalid_argument",
      `the archive holds '${name.slice(0, 200)}', which leads out of its root; make it with relative names (tar -C ROOT -c .)`,
    );
  }
}
