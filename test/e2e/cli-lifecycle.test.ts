import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { SandboxInfo } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";

let fleet: Fleet;

beforeAll(async () => {
  fleet = await startFleet();
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
});

async function make(...flags: string[]): Promise<string> {
  const result = await fleet.dsec(["run", "-q", ...flags, ...sandboxFlags]);
  if (result.code !== 0) throw new Error(result.stderr);
  return result.stdout.trim();
}

async function inspect(ref: string): Promise<SandboxInfo> {
  const [info] = JSON.parse((await fleet.dsec(["inspect", ref])).stdout) as SandboxInfo[];
  if (info === undefined) throw new Error(`nothing known of ${ref}`);
  return info;
}

describe("run", () => {
  test("prints the id of a sandbox that waits, and says on stderr how to enter it", async () => {
    const { code, stdout, stderr } = await fleet.dsec(["run", ...sandboxFlags]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^local-[a-z2-7]{10}\n$/) });
    expect(stderr).toContain(`dsec shell ${stdout.trim()}`);
  });

  test("makes what the flags say", async () => {
    const flags =
      "-d --name told -l job=train-7 -l empty= -e A=1 --ttl 5m --max-lifetime 1h30m --memory 512m --cpus 0.5 " +
      "--cpu-limit 2 --pids 99 --disk 1g --class best-effort --deny npm --hostname inside -u 1000 -w /tmp";
    const id = await make(...flags.split(" "));
    expect(await inspect("told")).toMatchObject({
      id,
      name: "told",
      labels: { job: "train-7", empty: "" },
      state: "running",
      spec: {
        env: { A: "1" },
        ttlRunningStop: 300,
        maxLifetime: 5400,
        memoryMb: 512,
        cpus: 0.5,
        cpuLimit: 2,
        pidsLimit: 99,
        diskMb: 1024,
        class: "best-effort",
        networkRules: { npm: false },
        hostname: "inside",
        initUser: "1000",
        workdir: "/tmp",
      },
    });
  });

  test("-d with a command records its output, and the sandbox ends with it", async () => {
    const id = await make("-d", "--name", "recorded").then(async (waiting) => {
      await fleet.dsec(["rm", waiting]);
      const argv = ["run", "-d", "--name", "recorded", ...sandboxFlags, "--", "sh", "-c", "echo out; exit 3"];
      return (await fleet.dsec(argv)).stdout.trim();
    });
    const waited = await fleet.dsec(["wait", "-o", "json", id]);
    expect(JSON.parse(waited.stdout)).toMatchObject([{ state: "stopped", endReason: "exited", exitCode: 3 }]);
    expect(await fleet.dsec(["logs", "recorded"])).toMatchObject({ code: 0, stdout: "out\n" });
  });

  test("--rm forgets the record with the end", async () => {
    const argv = ["run", "--rm", "--name", "forgotten", ...sandboxFlags, "--", "true"];
    expect((await fleet.dsec(argv)).code).toBe(0);
    expect((await fleet.dsec(["inspect", "forgotten"])).stderr).toContain("(not_found)");
  });

  test("without --rm the record is listed as ended when it returns", async () => {
    expect((await fleet.dsec(["run", "--name", "kept", ...sandboxFlags, "--", "false"])).code).toBe(1);
    const { state, exitCode } = await inspect("kept");
    expect({ state, exitCode }).toEqual({ state: "stopped", exitCode: 1 });
  });
});

describe("ls", () => {
  test("shows live ones, with -a or --state also ended ones, and filters by label", async () => {
    const live = await make("-l", "suite=ls", "-l", "n=1");
    const ended = await make("-l", "suite=ls", "-l", "n=2");
    await fleet.dsec(["stop", ended]);
    const ids = async (...flags: string[]): Promise<string[]> =>
      (await fleet.dsec(["ls", "-q", ...flags])).stdout
        .split("\n")
        .filter((line) => line !== "")
        .sort();
    expect(await ids("-l", "suite=ls")).toEqual([live]);
    expect(await ids("-l", "suite=ls", "-a")).toEqual([live, ended].sort());
    expect(await ids("-l", "suite=ls", "--state", "stopped")).toEqual([ended]);
    expect(await ids("-l", "suite=ls", "-l", "n=2", "-a")).toEqual([ended]);
    expect(await ids("-l", "suite=other", "-a")).toEqual([]);
  });

  test("shows the same in every format, ids unshortened", async () => {
    const id = await make("--name", "formats", "-l", "suite=formats");
    const show = async (format: string): Promise<string> =>
      (await fleet.dsec(["ls", "-l", "suite=formats", "-o", format])).stdout;
    expect(JSON.parse(await show("json"))).toMatchObject([{ id, name: "formats" }]);
    expect(JSON.parse(await show("ndjson"))).toMatchObject({ id });
    expect(await show("yaml")).toContain(`- id: ${id}\n`);
    expect(await show("name")).toBe(`${id}\n`);
    expect(await show("table")).toMatch(new RegExp(`^ID +NAME +IMAGE.*\n${id} +formats `));
    expect(await show("wide")).toMatch(/LABELS\n.*suite=formats\n$/);
  });
});

describe("a reader that goes away", () => {
  test("is no error", async () => {
    const listing = fleet.spawn(["ls", "-a", "-o", "json"]);
    listing.stdout?.destroy();
    const complaints: Buffer[] = [];
    listing.stderr?.on("data", (chunk: Buffer) => complaints.push(chunk));
    const [code] = await once(listing, "close");
    expect({ code, stderr: Buffer.concat(complaints).toString() }).toEqual({ code: 0, stderr: "" });
  });
});

describe("references", () => {
  test("are ids, names and unique prefixes of ids, everywhere", async () => {
    const id = await make("--name", "referred");
    for (const ref of [id, "referred", id.slice(0, -3)])
      expect((await fleet.dsec(["exec", ref, "--", "hostname"])).code).toBe(0);
    expect((await fleet.dsec(["touch", id.slice(0, -3)])).stdout).toBe(`${id}\n`);
  });
});

describe("touch and update", () => {
  test("touch renews the idle deadline and can change its length", async () => {
    const id = await make("--ttl", "10m");
    const before = await inspect(id);
    expect((await fleet.dsec(["touch", "--ttl", "2h", id])).stdout).toBe(`${id}\n`);
    const after = await inspect(id);
    expect(after.spec.ttlRunningStop).toBe(7200);
    expect(after.deadlineVersion).toBeGreaterThan(before.deadlineVersion);
    expect((after.idleDeadline ?? 0) - (before.idleDeadline ?? 0)).toBeGreaterThan(6_000_000);
  });

  test("update changes limits and adds labels", async () => {
    const id = await make("-l", "old=1", "--cpu-limit", "2");
    const argv = ["update", id, "--memory", "1g", "--cpus", "2", "--cpu-limit", "none", "-l", "new=2"];
    expect(await fleet.dsec(argv)).toMatchObject({ code: 0, stdout: `${id}\n` });
    const { spec, labels } = await inspect(id);
    expect(spec).toMatchObject({ memoryMb: 1024, cpus: 2 });
    expect(spec.cpuLimit ?? null).toBeNull();
    expect(labels).toEqual({ old: "1", new: "2" });
  });
});

describe("the end", () => {
  test("stop is idempotent, wait says why, rm forgets", async () => {
    const id = await make("--name", "ending");
    expect(await fleet.dsec(["stop", "ending"])).toMatchObject({ code: 0, stdout: `${id}\n` });
    expect((await fleet.dsec(["stop", id])).code).toBe(0);
    const waited = await fleet.dsec(["wait", id]);
    expect(waited.stdout).toMatch(new RegExp(`${id} +ending +stopped +stopped`));
    expect((await fleet.dsec(["exec", id, "--", "true"])).stderr).toContain("(sandbox_not_running)");
    expect(await fleet.dsec(["rm", id])).toMatchObject({ code: 0, stdout: `${id}\n` });
    expect((await fleet.dsec(["inspect", id])).code).toBe(125);
  });

  test("filters end many at once, and nothing else", async () => {
    const doomed = [await make("-l", "sweep=yes"), await make("-l", "sweep=yes")];
    const spared = await make("-l", "sweep=no");
    const stopped = await fleet.dsec(["stop", "-l", "sweep=yes"]);
    expect(
      stopped.stdout
        .split("\n")
        .filter((line) => line !== "")
        .sort(),
    ).toEqual(doomed.sort());
    expect((await inspect(spared)).state).toBe("running");
    const removed = await fleet.dsec(["rm", "-l", "sweep=yes"]);
    expect(
      removed.stdout
        .split("\n")
        .filter((line) => line !== "")
        .sort(),
    ).toEqual(doomed);
  });

  test("wait gives up with 124 when the time is up before", async () => {
    const id = await make();
    const { code, stdout, stderr } = await fleet.dsec(["wait", "--timeout", "100ms", id]);
    expect({ code, stdout }).toEqual({ code: 124, stdout: "" });
    expect(stderr).toContain("still running");
  });

  test("reclaim shows what it would free, then frees it", async () => {
    const id = await make("-l", "suite=reclaim");
    const dry = await fleet.dsec(["reclaim", "-l", "suite=reclaim", "--dry-run", "-o", "json"]);
    expect(JSON.parse(dry.stdout)).toMatchObject([{ id, ended: false }]);
    expect(dry.stderr).toMatch(/^would free .* of memory and .* of disk\n$/);
    expect((await inspect(id)).state).toBe("running");
    const none = await fleet.dsec(["reclaim", "-l", "suite=reclaim", "--idle", "1h", "-o", "json"]);
    expect(JSON.parse(none.stdout)).toEqual([]);
    const real = await fleet.dsec(["reclaim", "-l", "suite=reclaim", "-o", "json"]);
    expect(JSON.parse(real.stdout)).toMatchObject([{ id, ended: true }]);
    expect((await inspect(id)).state).toBe("stopped");
  });
});

describe("watch", () => {
  test("shows what is there, then every change, as NDJSON", async () => {
    const first = await make("-l", "suite=watch");
    const watching = fleet.spawn(["watch", "-l", "suite=watch", "-o", "ndjson"]);
    const exited = once(watching, "exit");
    if (watching.stdout === null) throw new Error("no stdout");
    const events: { readonly type: string; readonly id: string; readonly state: string }[] = [];
    let second: string | undefined;
    for await (const line of createInterface(watching.stdout)) {
      const event = JSON.parse(line);
      events.push({ type: event.type, id: event.sandbox?.id ?? event.id, state: event.sandbox?.state });
      if (event.type === "synced") second = await make("-l", "suite=watch");
      if (event.type === "changed" && event.sandbox.state === "running")
        await fleet.dsec(["rm", second ?? ""]);
      if (event.type === "removed") break;
    }
    watching.kill("SIGTERM");
    await exited;
    expect(events[0]).toEqual({ type: "snapshot", id: first, state: "running" });
    expect(events.at(-1)).toMatchObject({ type: "removed", id: second });
  });
});

describe("shell", () => {
  test("reads commands from a stdin that is no terminal, and exits with the last one's code", async () => {
    const id = await make();
    const result = await fleet.dsec(["shell", id], { stdin: "echo in $0\nexit 4\n" });
    expect(result.code).toBe(4);
    expect(result.stdout).toMatch(/^in /);
  });
});
