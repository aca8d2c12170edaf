import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Journal } from "../../../src/daemon/journal/journal.ts";
import { posixDriver } from "../../../src/daemon/sessions/posix-driver.ts";
import { startSessions } from "./session-fixture.ts";

test("a session that an earlier daemon had tells once that its shell was lost", async () => {
  await using fixture = await startSessions({ driver: posixDriver, lost: ["old"] });
  expect((await fixture.run("echo x", { session: "old" })).session.shell).toBe("restarted");
  expect((await fixture.run("echo x", { session: "old" })).session.shell).toBe("kept");
  expect((await fixture.run("echo x", { session: "new" })).session.shell).toBe("kept");
});

test("a later daemon knows of the sessions that there are", async () => {
  await using fixture = await startSessions({ driver: posixDriver, lost: ["old"] });
  await fixture.run("exit 1", { session: "one" });
  await fixture.run("true", { session: "two" });
  await expect(fixture.run("true", { session: "three", user: "no-such-user" })).rejects.toMatchObject({
    code: "no_such_user",
  });
  await fixture.sessions.end("two");
  await fixture.sessions.end("old");
  expect([...fixture.remembered]).toEqual(["one"]);
});

test("the journal keeps names of sessions", async () => {
  const directory = await mkdtemp(join(tmpdir(), "dsec-sessions-"));
  const path = join(directory, "journal.sqlite");
  const first = new Journal(path);
  first.addSession("a", "main");
  first.addSession("a", "main");
  first.addSession("a", "other");
  first.addSession("b", "main");
  first.removeSession("a", "other");
  first.close();
  const second = new Journal(path);
  expect([second.sessions("a"), second.sessions("b")]).toEqual([["main"], ["main"]]);
  second.removeSandbox("a");
  expect([second.sessions("a"), second.sessions("b")]).toEqual([[], ["main"]]);
  second.close();
  await rm(directory, { recursive: true });
});
