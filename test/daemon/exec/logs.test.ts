import { expect, test } from "vitest";
import type { ExecList, LogLine } from "../../../src/protocol/exec.ts";
import { TestDaemon } from "../daemon-fixture.ts";

async function logsOf(
  daemon: TestDaemon,
  ref: string,
  query: Record<string, string | number | boolean> = {},
) {
  const lines: LogLine[] = [];
  for await (const line of await daemon.http.lines<LogLine>("logs", { params: { ref }, query }))
    lines.push(line);
  const text = lines
    .map((line) => (line.type === "output" ? Buffer.from(line.data, "base64").toString() : ""))
    .join("");
  return { lines, text, end: lines.at(-1) };
}

test("a detached command is recorded, and its record outlives the sandbox", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const { status } = await daemon.run(id, ["sh", "-c", "echo one; echo two; exit 5"], {
    detach: true,
    endsSandbox: true,
  });
  expect(status).toMatchObject({ type: "detached" });
  expect(await daemon.wait(id)).toMatchObject({ endReason: "exited", exitCode: 5 });
  const { text, end } = await logsOf(daemon, id);
  expect(text).toBe("one\ntwo\n");
  expect(end).toMatchObject({ type: "end", exit: { exitCode: 5, stdoutBytes: 8 } });
  expect((await logsOf(daemon, id, { tail: 1 })).text).toBe("two\n");
  const { items } = await daemon.http.json<ExecList>("listExecs", { params: { ref: id } });
  expect(items).toMatchObject([
    { state: "exited", recorded: true, endsSandbox: true, exit: { exitCode: 5 } },
  ]);
});

test("logs are those of the newest record unless one is named", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const first = await daemon.run(id, ["echo", "first"], { record: true });
  await daemon.run(id, ["echo", "second"], { record: true });
  await daemon.run(id, ["echo", "not recorded"]);
  expect((await logsOf(daemon, id)).text).toBe("second\n");
  if (first.status.type !== "exit") throw new Error("the first command did not end");
  expect((await logsOf(daemon, id, { exec: first.status.execId })).text).toBe("first\n");
});

test("logs of what was not recorded are not found, and that says which command", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  await daemon.run(id, ["echo", "gone"]);
  await expect(logsOf(daemon, id)).rejects.toMatchObject({ code: "not_found" });
  await expect(logsOf(daemon, id, { exec: "abc" })).rejects.toMatchObject({
    code: "not_found",
    message: expect.stringContaining("abc") as string,
  });
});

test("a follower of a running command gets all of it and its end", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const exec = await daemon.exec(id, ["cat"], { stdin: true, record: true });
  await exec.started;
  exec.frame(0, "early\n");
  await expect.poll(() => exec.stdout.toString()).toBe("early\n");
  const following = logsOf(daemon, id, { follow: true });
  exec.frame(0, "late\n");
  exec.frame(0, "");
  const { text, end } = await following;
  expect(text).toBe("early\nlate\n");
  expect(end).toMatchObject({ type: "end", exit: { exitCode: 0 } });
});

test("a command that is kept goes on without its client, recorded", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const exec = await daemon.exec(id, ["sh", "-c", "echo before; sleep 0.2; echo after"], {
    onDisconnect: "keep",
  });
  await exec.started;
  exec.socket.terminate();
  const { text, end } = await logsOf(daemon, id, { follow: true });
  expect(text).toBe("before\nafter\n");
  expect(end).toMatchObject({ exit: { cause: "exited", exitCode: 0 } });
});

test("output without end is recorded within its bounds, and what is missing is marked", async () => {
  const daemon = await TestDaemon.start({ logHeadBytes: 65_536, logTailBytes: 65_536 });
  const { id } = await daemon.place();
  const exec = await daemon.exec(id, ["yes"], { record: true, timeoutMs: 300 });
  expect(await exec.status).toMatchObject({ timedOut: true });
  const { lines, text } = await logsOf(daemon, id);
  const gaps = lines.flatMap((line) => (line.type === "gap" ? [line.bytes] : []));
  expect(gaps).toHaveLength(1);
  expect(text.length + (gaps[0] ?? 0)).toBe(exec.stdout.length);
  expect(text.length).toBeLessThan(65_536 + 1.5 * 65_536 + 4 * 70_000);
});
