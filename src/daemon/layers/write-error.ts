import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";

/** What a file system refused to write, as `disk_full` or `permission_denied`; anything else as it is. @param what for the message */
export function writeError(error: unknown, what: string): unknown {
  if (isErrno(error, "ENOSPC", "EDQUOT"))
    return new DSecError("disk_full", `no room for ${what}`, { cause: error });
  if (isErrno(error, "EROFS", "EACCES"))
    return new DSecError("permission_denied", `${what} cannot be written`, { cause: error });
  return error;
}
