import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { type RunningAgent, run, sh, start, startAgent } from "./agent-fixture.ts";
import { childrenOf } from "./process-state.ts";

/** What a container's root has by default. */
const CAPABILITIES =
  "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod " +
  "audit_write setfcap";

/** Root as in a container, with the agent as process 1 of its namespace. */
const CONTAINED = [
  "unshare",
  "--fork",
  "--pid",
  "--kill-child",
  "--mount-proc",
  "--propagation=private",
  "setpriv",
  `--bounding-set=-all,+${CAPABILITIES.replaceAll(" ", ",+")}`,
  "--",
];

/** What the shell says; the agent must answer afterwards. */
async function attempt(connection: AgentConnection, script: string): Promise<string> {
  const result = await run(connection, sh(`{ ${script}; } 2>&1`));
  await connection.ping();
  return result.stdout.toString();
}

async function contained(
  body: (connection: AgentConnection, agent: RunningAgent) => Promise<void>,
): Promise<void> {
  await using agent = await startAgent({ prefix: CONTAINED });
  const connection = await agent.connect();
  await body(connection, agent);
}

const ptrace = (request: number): string => `perl -e 'print syscall(101, ${request}, 1, 0, 0), " ", $!+0'`;

describe("root in a sandbox, with the agent as process 1,", () => {
  test("is really root, really beside the agent", () =>
    contained(async (connection) => {
      expect(await attempt(connection, "id -u; cat /proc/1/comm")).toBe("0\ndsec-agent\n");
    }));

  test("cannot look into it, nor follow its descriptors", () =>
    contained(async (connection) => {
      for (const name of ["environ", "auxv", "mem", "maps", "io", "stack", "syscall"]) {
        expect(`${name}: ${await attempt(connection, `cat /proc/1/${name}`)}`).toMatch(
          /denied|not permitted/i,
        );
      }
      for (const name of ["exe", "root", "cwd", "fd/0", "fd/3", "fd/6", "task/1/fd/3"]) {
        expect(`${name}: ${await attempt(connection, `readlink /proc/1/${name} || echo none`)}`).toBe(
          `${name}: none\n`,
        );
        expect(`${name}: ${await attempt(connection, `cat < /proc/1/${name}`)}`).toMatch(
          /denied|cannot open/i,
        );
      }
    }));

  test("finds in it nothing of the environment and the descriptors it was started with", () =>
    contained(async (connection, agent) => {
      const process1 = childrenOf(agent.pid)[0]?.pid ?? 0;
      expect(readFileSync(`/proc/${process1}/environ`, "utf8").replaceAll("\0", "")).toBe("");
      expect(
        readdirSync(`/proc/${process1}/fd`)
          .map(Number)
          .every((fd) => fd < 16),
      ).toBe(true);
      expect(await attempt(connection, "env | cut -d= -f1 | sort | xargs")).toBe("HOME PATH PWD USER\n");
    }));

  test("cannot trace it", () =>
    contained(async (connection) => {
      // PTRACE_ATTACH and PTRACE_SEIZE: -1, EPERM.
      expect(await attempt(connection, ptrace(16))).toBe("-1 1");
      expect(await attempt(connection, ptrace(0x4206))).toBe("-1 1");
      // process_vm_readv, pidfd_getfd
      expect(await attempt(connection, `perl -e 'print syscall(310, 1, 0, 0, 0, 0, 0)'`)).toMatch(/-1|^0$/);
      const steal = `perl -e '$p = syscall(434, 1, 0); print syscall(438, $p, 64, 0), " ", $!+0'`;
      expect(await attempt(connection, steal)).toBe("-1 1");
    }));

  test("cannot stop or end it with any signal", () =>
    contained(async (connection) => {
      expect(
        await attempt(connection, "i=1; while [ $i -le 64 ]; do kill -$i 1; i=$((i+1)); done; echo"),
      ).toBe("\n");
      const flood = "i=0; while [ $i -lt 2000 ]; do kill -CHLD 1; kill -34 1; i=$((i+1)); done; echo over";
      expect(await attempt(connection, flood)).toContain("over");
      expect(await attempt(connection, "cut -d' ' -f3 /proc/1/stat")).toMatch(/^[RS]$/m);
    }));

  test("cannot change its limits", () =>
    contained(async (connection) => {
      expect(await attempt(connection, "prlimit --pid 1 --nofile=4:4; prlimit --pid 1 --cpu=1:1")).toMatch(
        /not permitted[^]*not permitted/,
      );
    }));

  test("cannot reach the channel, and finds no descriptor of it anywhere", () =>
    contained(async (connection) => {
      await start(connection, ["sleep", "1000"], { stdin: true });
      expect(await attempt(connection, "ls -l /proc/[0-9]*/fd/ 2>/dev/null | grep -c socket")).toBe("0\n");
    }));
});

test.for([
  ["a FIFO", "mkfifo $0/plant"],
  ["a device", "mknod $0/plant c 1 5"],
  ["a huge file", "truncate -s 4G $0/plant"],
  ["a text without end", "yes nobody | head -c 1000000 > $0/plant"],
  [
    "lines of odd shapes",
    "printf 'nobody\n:::::::::\nnobody:x:-1:1::/:\nnobody:x:99999999999:1::/:\n\n' > $0/plant",
  ],
] as const)("%s in place of the users' files is no user, and holds nothing up", async ([, plant]) => {
  const directory = mkdtempSync(join(tmpdir(), "dsec-plant-"));
  const script = `${plant}; for f in passwd group; do mount --bind $0/plant /etc/$f; done; exec "$@"`;
  const prefix = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, directory];
  {
    await using agent = await startAgent({ prefix });
    const connection = await agent.connect();
    expect((await run(connection, sh("id -u; id -g"), { user: "4711" })).stdout.toString()).toBe("4711\n0\n");
    await expect(run(connection, ["true"], { user: "nobody" })).rejects.toMatchObject({
      code: "no_such_user",
    });
    await expect(run(connection, ["true"], { user: "0:daemon" })).rejects.toMatchObject({
      code: "no_such_user",
    });
    expect((await run(connection, sh("echo $HOME"))).stdout.toString()).toBe("/\n");
  }
  rmSync(directory, { recursive: true });
});
