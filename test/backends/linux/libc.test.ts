import { openSync } from "node:fs";
import { expect, test } from "vitest";
import {
  closeDescriptor,
  ioctl,
  isErrno,
  LinuxError,
  libcFunction,
  rawSyscall,
} from "../../../src/backends/linux/libc.ts";

const rmdir = libcFunction<[string]>("rmdir", ["const char *path"]);

test("a failed call throws a LinuxError that carries the errno's name, the call and its subject", () => {
  const call = () => rmdir.about("/no/such", "/no/such");
  expect(call).toThrow(LinuxError);
  expect(call).toThrow(expect.objectContaining({ code: "ENOENT", errno: 2, syscall: "rmdir" }));
  expect(call).toThrow("ENOENT: no such file or directory, rmdir '/no/such'");
});

test("a thousand calls that wait on threads at once all come back", async () => {
  const yieldProcessor = libcFunction<[]>("sched_yield", []);
  const results = await Promise.all(
    Array.from({ length: 1000 }, async () => yieldProcessor.onThread("a thread")),
  );
  expect(results).toEqual(Array.from({ length: 1000 }, () => 0));
});

test("a raw system call is named in its error", () => {
  const pidfdSendSignal = 424;
  expect(() => rawSyscall("pidfd_send_signal", pidfdSendSignal, -1, 0, 0, 0)).toThrow(
    expect.objectContaining({ code: "EBADF", syscall: "pidfd_send_signal" }),
  );
});

test("an ioctl that the file does not know fails with ENOTTY", () => {
  const fd = openSync("/dev/null", "r");
  expect(() => ioctl("TCGETS", fd, 0x54_01, Buffer.alloc(64))).toThrow(
    expect.objectContaining({ code: "ENOTTY" }),
  );
  closeDescriptor(fd);
});

test("isErrno knows errors of Node and of the C library alike", () => {
  const caught: unknown[] = [];
  for (const call of [() => openSync("/no/such", "r"), () => rmdir("/no/such")]) {
    try {
      call();
    } catch (error) {
      caught.push(error);
    }
  }
  expect(caught.map((error) => isErrno(error, "EPERM", "ENOENT"))).toEqual([true, true]);
  expect(caught.map((error) => isErrno(error, "EPERM"))).toEqual([false, false]);
  expect(isErrno("ENOENT", "ENOENT")).toBe(false);
});
