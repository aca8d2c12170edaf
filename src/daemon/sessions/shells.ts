import { bashDriver } from "./bash-driver.ts";
import { posixDriver } from "./posix-driver.ts";
import type { ShellDriver } from "./shell-driver.ts";

/** bash where the image has it, else its POSIX shell. */
export const shells: readonly ShellDriver[] = [bashDriver, posixDriver];
