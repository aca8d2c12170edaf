/** Sockets that Node does not make. */
import { libcFunction } from "./libc.ts";

export const SOCK_STREAM = 1;
export const SOCK_CLOEXEC = 0o2_000_000;

export const socket = libcFunction<[number, number, number]>("socket", [
  "int domain",
  "int type",
  "int protocol",
]);
export const bind = libcFunction<[number, Uint8Array, number]>("bind", [
  "int fd",
  "void *address",
  "unsigned int length",
]);
export const listen = libcFunction<[number, number]>("listen", ["int fd", "int backlog"]);
export const setOption = libcFunction<[number, number, number, Uint8Array, number]>("setsockopt", [
  "int fd",
  "int level",
  "int name",
  "const void *value",
  "unsigned int length",
]);
