/** What root in a sandbox tries, and how it ends. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Running } from "../../../src/backends/backend.ts";
import { agentBinaryPath } from "../../../src/agent/agent-binary.ts";
import { preferredRuntimes } from "../../../src/backends/container/runc/runtime.ts";
import { attempt, SandboxFixture, shell } from "./sandbox-fixture.ts";

describe.for(preferredRuntimes)("started by %s", (runtime) => {
  let fixture: SandboxFixture;
  let sandbox: Running;

  beforeAll(async () => {
    fixture = new SandboxFixture(runtime);
    sandbox = await fixture.start();
  });

  afterAll(async () => {
    await fixture[Symbol.asyncDispose]();
  });

  const flag = {
    newTime: "0x80",
    newMount: "0x20000",
    newUser: "0x10000000",
    newPid: "0x20000000",
    newNet: "0x40000000",
  };
  const agent = "/dev/.dsec/agent";

  /** Command line of `attempt`, and how it must end; several where kernels differ. */
  const refused: readonly (readonly [title: string, argv: readonly string[], ...outcomes: string[]])[] = [
    // the agent
    ["enter the agent's root", ["open", "/proc/1/root", "0"], "EACCES"],
    ["enter the agent's directory", ["open", "/proc/1/cwd", "0"], "EACCES"],
    ["open the agent's binary through its process", ["open", "/proc/1/exe", "0"], "EACCES"],
    ["read the agent's memory", ["open", "/proc/1/mem", "0"], "EACCES"],
    ["write the agent's memory", ["open", "/proc/1/mem", "1"], "EROFS", "EACCES"],
    ["read the agent's environment", ["read", "/proc/1/environ"], "EACCES"],
    ["read the agent's address map", ["read", "/proc/1/maps"], "EACCES"],
    ["read the agent's stack", ["read", "/proc/1/stack"], "EACCES", "EPERM", "ENOENT"],
    ["make the agent easier to kill", ["write", "/proc/1/oom_score_adj", "1000"], "EROFS"],
    ["do so by the agent's thread", ["write", "/proc/1/task/1/oom_score_adj", "1000"], "EROFS"],
    ["trace the agent", ["ptrace", "1"], "EPERM"],
    ["read the agent's memory by system call", ["process_vm_readv", "1"], "EPERM"],
    ["take the agent's listening socket", ["pidfd_getfd", "1", "3"], "EPERM"],
    ["change the agent's limits", ["prlimit", "1"], "EPERM"],
    ["write to the agent's file", ["open", agent, "1"], "EROFS", "ETXTBSY"],
    ["remove the agent's file", ["unlink", agent], "EBUSY"],
    ["put another file in the agent's place", ["rename", "/bin/busybox", agent], "EBUSY", "EXDEV"],
    ["change the mode of the agent's file", ["chmod", agent], "EROFS"],
    ["take the agent's file out of the way", ["umount", agent], "EPERM"],
    // mounts and namespaces
    ["mount a file system", ["mount", "tmpfs", "/tmp", "tmpfs", "0"], "EPERM"],
    ["mount a fresh proc", ["mount", "proc", "/tmp", "proc", "0"], "EPERM"],
    ["mount a fresh sysfs", ["mount", "sysfs", "/tmp", "sysfs", "0"], "EPERM"],
    ["mount control groups", ["mount", "cgroup", "/tmp", "cgroup", "0"], "EPERM"],
    ["remount /sys writable", ["mount", "sysfs", "/sys", "sysfs", "32"], "EPERM"],
    ["uncover a masked path", ["umount", "/proc/kcore"], "EPERM"],
    ["change the root", ["pivot_root"], "EPERM"],
    ["use the new mount calls", ["fsopen"], "EPERM"],
    ["clone a mount", ["open_tree"], "EPERM"],
    ["unshare the mount namespace", ["unshare", flag.newMount], "EPERM"],
    ["unshare the user namespace", ["unshare", flag.newUser], "EPERM"],
    ["unshare the time namespace", ["unshare", flag.newTime], "EPERM"],
    ["clone into a user namespace", ["clone", flag.newUser], "EPERM"],
    ["clone into a process namespace", ["clone", flag.newPid], "EPERM"],
    ["clone into a network namespace", ["clone", flag.newNet], "EPERM"],
    ["clone by the call whose flags a filter cannot see", ["clone3"], "ENOSYS"],
    ["enter a namespace", ["setns"], "EPERM"],
    // the kernel
    ["load a BPF program", ["bpf"], "EPERM"],
    ["sample the machine", ["perf_event_open"], "EPERM"],
    ["handle page faults", ["userfaultfd"], "EPERM"],
    ["use io_uring", ["io_uring_setup"], "EPERM"],
    ["use keyrings", ["keyctl"], "EPERM"],
    ["add a key", ["add_key"], "EPERM"],
    ["boot another kernel", ["kexec_load"], "EPERM"],
    ["load a module", ["init_module"], "EPERM"],
    ["reboot", ["reboot"], "EPERM"],
    ["swap", ["swapon"], "EPERM"],
    ["read the kernel's log", ["syslog"], "EPERM"],
    ["read the kernel's log by its device", ["read", "/dev/kmsg"], "ENOENT"],
    ["set the clock", ["settimeofday"], "EPERM"],
    ["account processes", ["acct"], "EPERM"],
    ["change quotas", ["quotactl"], "EPERM"],
    ["change the host name", ["sethostname"], "EPERM"],
    ["open a file by its handle", ["open_by_handle_at"], "EPERM"],
    ["raise its priority", ["setpriority", "-5"], "EACCES", "EPERM"],
    ["lower the agent's priority", ["setpriority_of", "0", "1"], "ENOSYS"],
    ["lower the agent's priority, with high bits", ["setpriority_of", "0", "0x100000001"], "ENOSYS"],
    ["lower the priority of the agent's process group", ["setpriority_of", "1", "1"], "ENOSYS"],
    ["lower the priority of all of root's processes", ["setpriority_of", "2", "0"], "ENOSYS"],
    ["lower that priority, with high bits", ["setpriority_of", "0x100000002", "0"], "ENOSYS"],
    ["have the agent read last", ["ioprio_of", "1", "1"], "ENOSYS"],
    ["have all of root's processes read last", ["ioprio_of", "3", "0"], "ENOSYS"],
    ["have the agent run only when nothing else does", ["idle", "1"], "ENOSYS"],
    ["have the agent idle, with high bits", ["idle", "0x500000001"], "ENOSYS"],
    ["change the agent's scheduling", ["sched_setparam", "1"], "ENOSYS"],
    ["change the agent's scheduling by attributes", ["sched_setattr", "1"], "ENOSYS"],
    ["bind the agent to one processor", ["sched_setaffinity", "1"], "ENOSYS"],
    ["choose a personality that weakens protections", ["personality", "0x0400000"], "ENOSYS"],
    // devices
    ["make a block device", ["mknod", "/tmp/vda", "0x6000", "254", "0"], "EPERM"],
    ["make a character device", ["mknod", "/tmp/mem", "0x2000", "1", "1"], "EPERM"],
    ["open the machine's memory", ["open", "/dev/mem", "0"], "ENOENT"],
    ["open the fuse device", ["open", "/dev/fuse", "2"], "ENOENT"],
    // paths of the machine
    ["read kernel memory", ["read", "/proc/kcore"], "nothing", "ENOENT"],
    ["read page counts by control group", ["read", "/proc/kpagecgroup"], "nothing"],
    ["read page flags", ["read", "/proc/kpageflags"], "nothing"],
    ["read kernel symbols", ["read", "/proc/kallsyms"], "nothing"],
    ["read timers", ["read", "/proc/timer_list"], "nothing", "ENOENT"],
    ["write a kernel setting", ["write", "/proc/sys/kernel/core_pattern", "|/tmp/x"], "EROFS"],
    ["write a network setting", ["write", "/proc/sys/net/ipv4/ip_forward", "1"], "EROFS"],
    ["press a magic key", ["write", "/proc/sysrq-trigger", "h"], "EROFS", "ENOENT"],
    ["write to sysfs", ["write", "/sys/class/net/lo/mtu", "100"], "EROFS", "ENOENT"],
    ["find the kernel's interfaces", ["open", "/sys/kernel/debug", "0"], "ENOENT"],
    ["find control groups", ["open", "/sys/fs/cgroup", "0"], "ENOENT"],
    // sockets
    ["send raw packets", ["socket", "2", "3", "1"], "EPERM"],
    ["capture packets", ["socket", "17", "3", "0"], "EPERM", "EAFNOSUPPORT"],
    ["use the kernel's ciphers", ["socket", "38", "5", "0"], "EAFNOSUPPORT"],
    ["reach the hypervisor", ["socket", "40", "1", "0"], "EAFNOSUPPORT"],
    ["write audit records", ["socket", "16", "3", "9"], "EPROTONOSUPPORT"],
    ["listen to device events", ["socket", "16", "3", "15"], "EPROTONOSUPPORT"],
    // requests by which extents or quotas could be changed, also with bits that the kernel ignores
    ["exchange extents (ext4)", ["ioctl", "/tmp", "0xc028660f"], "ENOSYS"],
    ["map extents", ["ioctl", "/tmp", "0xc020660b"], "ENOTTY"],
    ["exchange extents (XFS)", ["ioctl", "/tmp", "0xc0c0586d"], "ENOTTY"],
    ["change a project id", ["ioctl", "/tmp", "0x401c5820"], "ENOTTY"],
    ["change a project id, with high bits", ["ioctl", "/tmp", "0xff000000401c5820"], "ENOTTY"],
    ["clone a range", ["ioctl", "/tmp", "0x4020940d"], "ENOTTY"],
    ["clone a range, with high bits", ["ioctl", "/tmp", "0x100000004020940d"], "ENOTTY"],
    ["make a subvolume", ["ioctl", "/tmp", "0x5000940e"], "ENOTTY"],
    ["freeze a file system", ["ioctl", "/tmp", "0xc0045877"], "ENOTTY"],
  ];

  test.for(refused)("root cannot %s", async ([, argv, ...outcomes]) => {
    expect(outcomes).toContain(await attempt(sandbox, ...argv));
  });

  const allowed: readonly (readonly [title: string, argv: readonly string[]])[] = [
    ["start threads", ["thread"]],
    ["trace its own child", ["ptrace_child"]],
    ["make a FIFO", ["mknod", "/tmp/fifo", "0x1000", "0", "0"]],
    ["use Unix sockets", ["socketpair", "1"]],
    ["use TCP", ["socket", "2", "1", "0"]],
    ["use TCP over IPv6", ["socket", "10", "1", "0"]],
    ["ask for its interfaces", ["socket", "16", "3", "0"]],
    ["ask how much can be read", ["ioctl", "/dev/null", "0x541b"]],
    ["turn off address randomisation for a debugger", ["personality", "0x40000"]],
    ["use anonymous files", ["memfd"]],
    ["watch files", ["inotify"]],
    ["become another user", ["setuid"]],
    ["change its root", ["chroot", "/tmp"]],
    ["lower its priority", ["setpriority", "5"]],
    ["lower the priority of its process group", ["setpriority_of", "1", "0"]],
    ["read last", ["ioprio_of", "1", "0"]],
    ["run only when nothing else does", ["idle", "0"]],
    ["keep its scheduling", ["sched_setparam", "0"]],
    ["set its attributes", ["sched_setattr", "0"]],
    ["bind itself to one processor", ["sched_setaffinity", "0"]],
    ["bind low ports", ["capability", "10"]],
  ];

  test.for(allowed)("root can %s", async ([title, argv]) => {
    const outcome = await attempt(sandbox, ...argv);
    // not every file knows the request; the filter lets it pass
    expect(title.startsWith("ask how much") ? ["ok", "ENOTTY"] : ["ok"]).toContain(outcome);
  });

  describe("the agent", () => {
    test.for(["KILL", "STOP", "TERM", "SEGV", "HUP"])("does not notice SIG%s from inside", async (name) => {
      await shell(sandbox, `kill -${name} 1; kill -${name} -1`);
      expect(await shell(sandbox, "echo alive")).toBe("alive");
    });

    test("has descriptors that can be counted, but neither opened nor looked at", async () => {
      const numbers = (await shell(sandbox, "ls /proc/1/fd")).split("\n");
      expect(numbers.length).toBeGreaterThan(4);
      const outcomes = new Set<string>();
      for (const number of numbers) {
        outcomes.add(await attempt(sandbox, "open", `/proc/1/fd/${number}`, "0"));
        outcomes.add(await attempt(sandbox, "readlink", `/proc/1/fd/${number}`));
      }
      // The pipes of the commands themselves are closed by the time they are tried.
      outcomes.delete("ENOENT");
      expect([...outcomes]).toEqual(["EACCES"]);
    });

    test("has a socket whose path leads nowhere inside", async () => {
      expect(await shell(sandbox, "cat /proc/net/unix | wc -l")).toBe("1");
      const path = join(fixture.runDir, "sandboxes");
      expect(await shell(sandbox, `ls ${path}`)).toContain("No such file");
      expect(await attempt(sandbox, "connect", join(path, "x/agent.sock"))).toBe("ENOENT");
    });

    test("keeps its descriptors from what it starts", async () => {
      expect(await shell(sandbox, "ls /proc/self/fd | wc -l")).toBe("4");
    });

    test("is the same file afterwards", async () => {
      const before = readFileSync(agentBinaryPath());
      await shell(sandbox, `echo x >> ${agent}; cp /bin/true ${agent}; ln -f /bin/true ${agent}`);
      expect(readFileSync(agentBinaryPath()).equals(before)).toBe(true);
      const next = await fixture.start();
      expect(await shell(next, "echo alive")).toBe("alive");
    });
  });

  test("no process of the machine can be seen", async () => {
    const pids = await shell(sandbox, "ls /proc | grep -c '^[0-9]'; ls -d /proc/[0-9]* | wc -l");
    expect(Number(pids.split("\n").at(-1))).toBeLessThan(10);
  });

  test("a set-user-id program gains nothing", async () => {
    expect(
      await shell(
        sandbox,
        "su agent -c 'ln -sf /bin/setuid-id /tmp/id; /tmp/id -u; grep NoNewPrivs /proc/self/status'",
      ),
    ).toMatch(/^1000\nNoNewPrivs:\s+1$/);
  });

  test("a control group's release agent is out of reach", async () => {
    const found = await shell(sandbox, "cat /proc/self/cgroup; ls / -R 2>/dev/null | grep release_agent");
    expect(found.split("\n").filter((line) => !/^\d+:[^:]*:\/$/.test(line))).toEqual([]);
  });

  test("a host directory's symlink leads into the sandbox", async () => {
    const secret = mkdtempSync("/tmp/dsec-secret-");
    try {
      expect(await shell(sandbox, `ln -s ${secret} /tmp/link; ls /tmp/link/`)).toContain("No such file");
    } finally {
      rmSync(secret, { recursive: true });
    }
  });

  test("terminals of one sandbox are not those of another", async () => {
    const other = await fixture.start();
    const tty = { rows: 24, cols: 80 };
    const held = await sandbox.guest.exec(
      { argv: ["/bin/sleep", "600"], env: {}, stdin: false, tty },
      () => undefined,
    );
    expect(await shell(sandbox, "ls /dev/pts")).toBe("0\nptmx");
    expect(await shell(other, "ls /dev/pts")).toBe("ptmx");
    held.release();
  });
});
