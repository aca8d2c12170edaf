import { closeSync, constants, openSync } from "node:fs";
import { closeDescriptor, libcFunction } from "./libc.ts";

/**
 * Layers below an overlay: the kernel's own limit. They are given one by one (fsconfig(2), `lowerdir+`), so no page of options
 * limits their number or the characters of their paths. Linux 6.8 or newer; EROFS images in files take a newer one.
 */
export const maxLowerLayers = 500;

/** Of open(2): the directory is only pointed at. */
const O_PATH = 0o10_000_000;

export interface OverlayLayers {
  /** From the uppermost to the base; at most {@link maxLowerLayers}. */
  readonly lower: readonly string[];
  /** Where writes go, with `work`; read-only without. */
  readonly upper?: string;
  readonly work?: string;
  /** More options, e.g. `metacopy=on`, `volatile`. */
  readonly options?: readonly string[];
}

// Not all C libraries wrap them.
const fsopen = libcFunction<[number, string, number]>(
  "fsopen",
  ["long", "const char *type", "long flags"],
  "syscall",
);
const fsconfig = libcFunction<[number, number, number, string | null, string | null, number]>(
  "fsconfig",
  ["long", "long fd", "long command", "const char *key", "const char *value", "long aux"],
  "syscall",
);
const fsmount = libcFunction<[number, number, number, number]>(
  "fsmount",
  ["long", "long fd", "long flags", "long attributes"],
  "syscall",
);
const moveMount = libcFunction<[number, number, string, number, string, number]>(
  "move_mount",
  ["long", "long from", "const char *fromPath", "long to", "const char *toPath", "long flags"],
  "syscall",
);
/** The same on every architecture. */
const SystemCall = { moveMount: 429, fsopen: 430, fsconfig: 431, fsmount: 432 } as const;
const Command = { flag: 0, string: 1, create: 6 } as const;
const closeOnExec = 1;
const noDev = 4;
const atWorkingDirectory = -100;
const fromEmptyPath = 4;

/**
 * Mounts an overlay at `target`. Its directories are given by descriptors: whoever sees the mount can read how they were given, and a
 * sandbox need not know how its host's directories are called.
 *
 * @throws LinuxError, which names the setting that was refused; RangeError for more layers than {@link maxLowerLayers};
 *   an error of open(2), which names the directory
 */
export function mountOverlay(layers: OverlayLayers, target: string): void {
  if (layers.lower.length > maxLowerLayers)
    throw new RangeError(
      `${layers.lower.length} layers are more than an overlay can have: ${maxLowerLayers}`,
    );
  const directories: number[] = [];
  const given = (path: string): string => {
    const descriptor = openSync(path, O_PATH | constants.O_DIRECTORY);
    directories.push(descriptor);
    return `/proc/self/fd/${descriptor}`;
  };
  try {
    const settings = [
      ["source", "overlay"],
      ...layers.lower.map((path) => ["lowerdir+", given(path)]),
      ...(layers.upper === undefined ? [] : [["upperdir", given(layers.upper)]]),
      ...(layers.work === undefined ? [] : [["workdir", given(layers.work)]]),
      ...(layers.options ?? []).map((option) => option.split("=", 2)),
    ];
    mountWith(settings, target);
  } finally {
    for (const descriptor of directories) closeSync(descriptor);
  }
}

function mountWith(settings: readonly (readonly string[])[], target: string): void {
  const context = fsopen(SystemCall.fsopen, "overlay", closeOnExec);
  try {
    for (const [key = "", value] of settings)
      configure(context, target, value === undefined ? Command.flag : Command.string, key, value ?? null);
    configure(context, target, Command.create, null, null);
    const mounted = fsmount.about(target, SystemCall.fsmount, context, closeOnExec, noDev);
    try {
      moveMount.about(target, SystemCall.moveMount, mounted, "", atWorkingDirectory, target, fromEmptyPath);
    } finally {
      closeDescriptor(mounted);
    }
  } finally {
    closeDescriptor(context);
  }
}

function configure(
  context: number,
  target: string,
  command: number,
  key: string | null,
  value: string | null,
): void {
  const setting = [key, value].filter((part) => part !== null).join("=");
  const subject = setting === "" ? target : `${target}: ${setting}`;
  fsconfig.about(subject, SystemCall.fsconfig, context, command, key, value, 0);
}
