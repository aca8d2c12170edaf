import { expect, test } from "vitest";
import { TestDaemon } from "./daemon-fixture.ts";

test("a sandbox is created, runs a command and is stopped through the socket", async () => {
  const daemon = await TestDaemon.start();
  const sandbox = await daemon.place({ name: "web" });
  expect(sandbox).toMatchObject({
    state: "running",
    name: "web",
    owner: "alice",
    activeExecs: 0,
    deadlineVersion: 1,
  });

  const { status, stdout } = await daemon.run("web", ["echo", "a  b", "c"]);
  expect(status).toMatchObject({ type: "exit", exitCode: 0, cause: "exited", stdoutBytes: 7 });
  expect(stdout).toBe("a  b c\n");

  expect(await daemon.stop(sandbox.id)).toMatchObject({ state: "stopped", endReason: "stopped" });
});
