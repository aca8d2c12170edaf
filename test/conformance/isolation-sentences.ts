import { expect, test } from "vitest";
import { sh } from "./fixture.ts";
import type { Suite } from "./suite.ts";

export function isolationSentences({ fixture }: Suite): void {
  test("root inside can neither kill nor stop the agent, nor look into it", async () => {
    const { guest } = await fixture().start();
    await sh(guest, "for signal in 1 2 3 9 11 15 19 20; do kill -$signal 1; done");
    await guest.ping();
    for (const path of ["root/", "exe", "mem", "maps", "environ", "cwd/", "map_files/"]) {
      const { exit } = await sh(guest, `ls /proc/1/${path} && head -c 1 /proc/1/${path}`);
      expect([path, exit.code === 0]).toEqual([path, false]);
    }
    // The numbers of its descriptors can be seen, what they are cannot.
    const descriptors = "for file in /proc/1/fd/*; do readlink $file; (echo x > $file) && echo $file; done";
    expect((await sh(guest, descriptors)).text).toBe("");
    await guest.ping();
  });

  test("a process inside has no descriptor but the three that are its own", async () => {
    const { guest } = await fixture().start();
    const { text } = await sh(guest, "exec ls /proc/self/fd");
    // 3 is the directory that is being listed.
    expect(text).toBe("0\n1\n2\n3\n");
  });

  test("root inside can gain nothing: no mounts, no devices, no new privileges", async () => {
    const { guest } = await fixture().start();
    expect((await sh(guest, "mount -t tmpfs none /tmp")).exit.code).not.toBe(0);
    expect((await sh(guest, "mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk")).exit.code).not.toBe(0);
    expect((await sh(guest, "grep NoNewPrivs /proc/self/status")).text).toMatch(/1$/m);
    expect((await sh(guest, "hostname other")).exit.code).not.toBe(0);
    expect((await sh(guest, "echo 1 > /proc/sys/kernel/panic")).exit.code).not.toBe(0);
  });

  test("what would show or crash the machine is masked", async () => {
    const { guest } = await fixture().start();
    for (const path of [
      "/proc/kcore",
      "/proc/kpagecgroup",
      "/proc/kpageflags",
      "/proc/keys",
      "/proc/timer_list",
    ]) {
      const { stdout } = await sh(guest, `head -c 1 ${path} 2>/dev/null`);
      expect([path, stdout.length]).toEqual([path, 0]);
    }
  });

  test("processes of one sandbox are invisible to another", async () => {
    const one = await fixture().start();
    const other = await fixture().start();
    const exec = await one.guest.exec({ argv: ["sleep", "424242"], env: {}, stdin: false }, () => {});
    const { text } = await sh(other.guest, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
    expect(text).not.toContain("sleep 424242");
    exec.release();
  });

  test("loopback works, and there is no way out", async () => {
    const { guest } = await fixture().start();
    expect((await sh(guest, "ip -o addr show lo")).text).toContain("127.0.0.1");
    expect((await sh(guest, "cat /sys/class/net/lo/flags")).text.trim()).toBe("0x9");
    const { exit } = await sh(guest, "nc -w 2 192.0.2.1 80 < /dev/null");
    expect(exit.code).not.toBe(0);
  });
}
