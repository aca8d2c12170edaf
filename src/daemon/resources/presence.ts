import { stat } from "node:fs/promises";
import { isErrno } from "../../backends/linux/libc.ts";

/** Whether there is anything at `path`. @throws Error of stat(2), but for its absence */
export async function isPresent(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}
