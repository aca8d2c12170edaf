import { closeSync, constants, openSync } from "node:fs";
import { libcFunction } from "./libc.ts";

/** The same on every architecture; since Linux 6.5. */
const sysCachestat = 451;
/** Of struct cachestat_range and struct cachestat. */
const rangeBytes = 16;
const statBytes = 40;

const cachestat = libcFunction<[number, number, Uint8Array, Uint8Array, number]>(
  "cachestat",
  ["long number", "unsigned long fd", "void *range", "void *stat", "unsigned long flags"],
  "syscall",
);
const getPageSize = libcFunction<[]>("getpagesize", []);

let pageSize: number | undefined;

/** Bytes of a file that are in the page cache, in whole pages. The file is not read. @throws LinuxError `ENOSYS` before Linux 6.5, Node's errors of files */
export function cachedBytes(path: string): number {
  pageSize ??= getPageSize();
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const result = Buffer.alloc(statBytes);
    cachestat.about(path, sysCachestat, fd, Buffer.alloc(rangeBytes), result, 0);
    return Number(result.readBigUInt64LE(0)) * pageSize;
  } finally {
    closeSync(fd);
  }
}
