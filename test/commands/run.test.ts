import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import type { Io } from "../../src/commands/io.ts";
import { main } from "../../src/commands/main.ts";
import { TestFleet } from "../scheduler/fleet-fixture.ts";

test("a command's code is passed on where records of what has ended are not kept", async () => {
  const fleet = await TestFleet.start(["n1"], { daemon: { keepEnded: 0, maxEnded: 0 } });
  const stderr = new PassThrough();
  const io: Io = {
    stdin: new PassThrough(),
    stdout: new PassThrough().resume(),
    stderr,
    env: { DSEC_ADDRESS: fleet.address, DSEC_TOKEN: fleet.coordinator.token },
    now: Date.now,
    readerGone: new AbortController().signal,
  };
  const argv = ["run", "--rm", "--backend", "simulated", "none", "--", "sh", "-c", "exit 7"];
  const code = await main(argv, io);
  expect({ code, stderr: String(stderr.read() ?? "") }).toEqual({ code: 7, stderr: "" });
});
