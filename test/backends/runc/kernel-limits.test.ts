import { expect, test } from "vitest";
import { kernelLimitFindings } from "../../../src/backends/container/runc/kernel-limits.ts";

test("a limit that all sandboxes share and that is too low comes with the command that mends it", () => {
  const read = (name: string) => (name === "fs.inotify.max_user_instances" ? 128 : 1_000_000);
  expect(kernelLimitFindings(read)).toEqual([
    {
      level: "warning",
      message: "fs.inotify.max_user_instances is 128 for all sandboxes together: one can take them all",
      fix: "sysctl -w fs.inotify.max_user_instances=65536",
    },
  ]);
});

test("limits that are high enough, or that the kernel does not have, are no finding", () => {
  expect(kernelLimitFindings(() => 1_000_000)).toEqual([]);
  expect(kernelLimitFindings(() => undefined)).toEqual([]);
});
