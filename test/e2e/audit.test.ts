/** What processes do, as the kernel tells it; and what becomes of that when the fleet's process, or the one that reads the kernel, is killed. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AuditEvent, DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { connects, loadedPrograms, missingForAudit } from "../daemon/audit/audited-node.ts";
import { networkedEngines } from "../daemon/network/networked-engines.ts";
import { type Fleet, startFleet } from "./fleet.ts";

const missing = missingForAudit();
const port = 4711;

type Of<K extends AuditEvent["kind"]> = Extract<AuditEvent, { kind: K }>;

function only<K extends AuditEvent["kind"]>(kind: K, events: readonly AuditEvent[]): Of<K>[] {
  return events.filter((event): event is Of<K> => event.kind === kind);
}

async function eventsOf(sandbox: Sandbox, follow = false): Promise<AuditEvent[]> {
  const events: AuditEvent[] = [];
  for await (const event of sandbox.audit({ follow })) events.push(event);
  return events;
}

/** Everything of a sandbox, once `last` is told. */
async function told(sandbox: Sandbox, last: (event: AuditEvent) => boolean): Promise<AuditEvent[]> {
  let events: AuditEvent[] = [];
  await expect.poll(async () => (events = await eventsOf(sandbox)).some(last)).toBe(true);
  return events;
}

const isExecOf =
  (text: string) =>
  (event: AuditEvent): boolean =>
    event.kind === "exec" && event.argv.includes(text);

describe.skipIf(missing !== undefined)(`the audit (missing: ${missing ?? "nothing"})`, () => {
  const scope = new AsyncDisposableStack();
  let before: number[];
  let fleet: Fleet;
  let client: DSecClient;
  let sandbox: Sandbox;

  beforeAll(async () => {
    before = await loadedPrograms();
    fleet = scope.use(await startFleet({ flags: ["--audit"] }));
    client = await fleet.client();
    scope.defer(() => client.close());
    sandbox = await client.runContainer({ image: "busybox", engine: "runc", memoryMb: 64 });
  });
  afterAll(async () => scope.disposeAsync());

  async function audit(...flags: string[]): Promise<string> {
    const { code, stdout, stderr } = await fleet.dsec(["audit", ...flags, sandbox.id]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout;
  }

  test.each(networkedEngines)(
    "of containers of $engine tells programs, connects and ends of the sandbox in which they were, and after its end",
    async ({ spec }) => {
      const one = await client.createSandbox(spec);
      const odd = 'printf hidden > /dev/null; /bin/true "$(printf "\\033[2J\\377")" ""; exit 7';
      const since = Date.now();
      await one.exec(["sh", "-c", odd], { user: "1000:1000" });
      await one.exec(["sh", "-c", "kill -9 $$"]);
      await one.exec(await connects(port, 0));
      const events = await told(one, (event) => event.kind === "exit" && event.command === "connects");

      const execs = only("exec", events);
      const exits = only("exit", events);
      const shell = execs.find(isExecOf(odd));
      expect(shell).toMatchObject({
        sandbox: one.id,
        path: expect.stringMatching(/\/sh$/) as string,
        argv: ["sh", "-c", odd],
        truncated: false,
        uid: 1000,
        command: "sh",
      });
      expect(shell?.pid).not.toBe(shell?.nodePid);
      expect(shell?.time).toBeGreaterThan(since - 1000);
      expect(shell?.time).toBeLessThan(Date.now() + 1000);
      expect(execs.find(({ path }) => path === "/bin/true")).toMatchObject({
        argv: ["/bin/true", "\u001B[2J\uFFFD", ""],
        parentPid: shell?.pid,
      });
      expect(exits.find(({ pid }) => pid === shell?.pid)).toMatchObject({ exitCode: 7 });
      expect(exits.find(({ signal }) => signal !== undefined)).toMatchObject({ signal: 9 });
      expect(execs.find(({ argv }) => argv[4] === `${port}`)).toMatchObject({ truncated: true });
      const connections = only("connect", events);
      expect(connections.map(({ protocol, address }) => `${protocol} ${address}`)).toEqual([
        "tcp 127.0.0.1",
        "tcp ::1",
        "tcp 127.0.0.2",
        "udp 127.0.0.1",
        "udp ::1",
        "tcp 127.0.0.3",
        "tcp 127.0.0.4",
        "tcp 2001:db8::1",
      ]);
      expect(new Set(connections.map((event) => event.port))).toEqual(new Set([port]));
      expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, index) => index + 1));
      expect((await eventsOf(sandbox)).some(isExecOf(odd))).toBe(false);

      await one.stop();
      expect((await eventsOf(one, true)).slice(0, events.length)).toEqual(events);
      expect((await fleet.dsec(["rm", one.id])).code).toBe(0);
      await expect(eventsOf(one)).rejects.toMatchObject({ code: "not_found" });
    },
  );

  test("counts what it cuts of a flood, which pushes out neither other kinds of events nor those of other sandboxes", async () => {
    await using loud = await client.runContainer({ image: "busybox", engine: "runc", memoryMb: 64 });
    await loud.execDetached(await connects(port, 2_000_000_000));
    const lost = async () =>
      only("lost", await eventsOf(loud)).reduce((sum, { count = 0 }) => sum + count, 0);
    await expect.poll(lost).toBeGreaterThan(1000);
    await sandbox.exec(["/bin/true", "meanwhile"]);
    await told(sandbox, isExecOf("meanwhile"));
    expect(only("lost", await eventsOf(sandbox))).toEqual([]);
    expect((await eventsOf(loud)).some(isExecOf("/tmp/connects"))).toBe(true);
  });

  test("does not let what processes say of themselves reach the terminal as they say it", async () => {
    await sandbox.exec(["/bin/true", "\u001B]0;title\u0007", "two words"]);
    await told(sandbox, isExecOf("two words"));
    const table = await audit();
    expect(table).toMatch(/^TIME +KIND +PID +PARENT +UID +COMMAND +WHAT\n/);
    expect(table).toContain(String.raw`/bin/true: /bin/true "\u001b]0;title\u0007" "two words"`);
    expect(table.replaceAll("\n", "")).not.toMatch(/\p{Cc}/u);
    const lines = (await audit("--kind", "exec", "-o", "ndjson")).trimEnd().split("\n");
    const parsed = lines.map((line) => JSON.parse(line) as AuditEvent);
    expect(parsed.some(isExecOf("\u001B]0;title\u0007"))).toBe(true);
    expect(new Set(parsed.map(({ kind }) => kind))).toEqual(new Set(["exec"]));
    expect((await fleet.dsec(["audit", "--kind", "fork", sandbox.id])).code).toBe(2);
  });

  test("is begun anew when its reader is killed, and tells of the gap", async () => {
    const children = await readFile(`/proc/${fleet.pid}/task/${fleet.pid}/children`, "utf8");
    const readers: string[] = [];
    for (const pid of children.trim().split(" "))
      if ((await readFile(`/proc/${pid}/comm`, "utf8")) === "dsec-audit\n") readers.push(pid);
    expect(readers).toHaveLength(1);
    const [reader = ""] = readers;
    // of root it keeps what old kernels ask for with every use of a map, and nothing else
    const status = await readFile(`/proc/${reader}/status`, "utf8");
    expect(status).toMatch(/^Uid:\t65534\t65534\t65534\t65534$/m);
    expect(status).toMatch(/^CapEff:\t0000008000000000$/m);
    process.kill(Number(reader), "SIGKILL");
    await told(sandbox, (event) => event.kind === "lost" && event.count === undefined);
    await expect
      .poll(async () => {
        await sandbox.exec(["/bin/true", "again"]);
        return (await eventsOf(sandbox)).some(isExecOf("again"));
      })
      .toBe(true);
  });

  test("leaves nothing in the kernel when the fleet is killed, and the next one audits what it takes up", async () => {
    expect((await loadedPrograms()).length).toBeGreaterThan(before.length);
    await fleet.kill("SIGKILL");
    await expect.poll(loadedPrograms).toEqual(before);
    await fleet.restart();
    await sandbox.exec(["/bin/true", "taken up"]);
    await told(sandbox, isExecOf("taken up"));
  });
});
