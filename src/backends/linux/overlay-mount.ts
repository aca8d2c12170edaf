import { closeDescriptor, libcFunction } from "./libc.ts";

/**
 * Layers below an overlay: the kernel's own limit. They are given one by one (fsconfig(2), `lowerdir+`), so no page of options
 * limits their number or the characters of their paths. Linux 6.8 or newer; EROFS images in files take a newer one.
 */
export const maxLowerLayers = 500;

/** The longest value fsconfig(2) takes. */
const longestValue = 255;

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
 * Mounts an overlay at `target`.
 *
 * @throws LinuxError, which names the setting that was refused; RangeError for more layers than {@link maxLowerLayers} or a path of more than 255 bytes
 */
export function mountOverlay(layers: OverlayLayers, target: string): void {
  if (layers.lower.length > maxLowerLayers)
    throw new RangeError(
      `${layers.lower.length} layers are more than an overlay can have: ${maxLowerLayers}`,
    );
  const settings = [
    ["source", "overlay"],
    ...layers.lower.map((path) => ["lowerdir+", path]),
    ...(layers.upper === undefined ? [] : [["upperdir", layers.upper]]),
    ...(layers.work === undefined ? [] : [["workdir", layers.work]]),
    ...(layers.options ?? []).map((option) => option.split("=", 2)),
  ] as const;
  const context = fsopen(SystemCall.fsopen, "overlay", closeOnExec);
  try {
    for (const [key = "", value] of settings) {
      if (value !== undefined && Buffer.byteLength(value) > longestValue)
        throw new RangeError(`a path of an overlay has at most ${longestValue} bytes: ${value}`);
      configure(context, target, value === undefined ? Command.flag : Command.string, key, value ?? null);
    }
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
