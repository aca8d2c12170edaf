import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The project's own directory: every script works from any current directory. */
export const projectRoot = fileURLToPath(new URL("../../", import.meta.url));

const localBin = join(projectRoot, "node_modules", ".bin");

/** Node as the lock file names it; the system's own may be too old for anything but the set-up. */
export const projectNode = join(localBin, "node");

export const dsecCommand = join(projectRoot, "dist", "bin", "dsec.js");

/** The environment of whatever the scripts start: the project's Node and tools come first. */
export const projectEnv = { ...process.env, PATH: `${localBin}:${process.env["PATH"] ?? ""}` };

export const isRoot = process.geteuid?.() === 0;
