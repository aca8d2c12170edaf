import { execFileSync } from "node:child_process";
import { existsSync, readlinkSync } from "node:fs";
import { expect, test } from "vitest";
import { openNamespace, removeNamespacePin } from "../../../src/backends/linux/namespaces.ts";
import { isMounted } from "../../../src/backends/linux/mount.ts";

test("a held network namespace outlives its pin and can be entered by its path", () => {
  const name = `dsec-test-${process.pid}`;
  const pin = `/run/netns/${name}`;
  execFileSync("ip", ["netns", "add", name]);
  const namespace = openNamespace(pin);
  try {
    removeNamespacePin(pin);
    removeNamespacePin(pin);
    expect(isMounted(pin)).toBe(false);
    expect(existsSync(pin)).toBe(false);
    const inside = execFileSync("nsenter", [`--net=${namespace.path}`, "readlink", "/proc/self/ns/net"], {
      encoding: "utf8",
    });
    expect(inside.trim()).toBe(`net:[${namespace.inode}]`);
    expect(inside.trim()).not.toBe(readlinkSync("/proc/self/ns/net"));
  } finally {
    namespace.close();
  }
  expect(existsSync(namespace.path)).toBe(false);
});
