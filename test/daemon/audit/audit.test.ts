import { spawn } from "node:child_process";
import { once } from "node:events";
import { chown } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { TestDaemon, temporaryDir, testOptions } from "../daemon-fixture.ts";
import { loadedPrograms, missingForAudit } from "./audited-node.ts";

const missing = missingForAudit();
const loaded = async () => (missing === undefined ? loadedPrograms() : []);

test("a node that was not told to audit says so, and has loaded nothing", async () => {
  const before = await loaded();
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  await expect(daemon.http.lines("audit", { params: { ref: id } })).rejects.toMatchObject({
    code: "audit_unavailable",
    message: expect.stringContaining("started without --audit") as string,
  });
  expect(await daemon.metrics()).not.toContain("dsec_audit");
  expect(await loaded()).toEqual(before);
});

test.skipIf(missing !== undefined)(
  `a sandbox whose processes are no kernel's is not audited, and that is said (missing: ${missing ?? "nothing"})`,
  async () => {
    const daemon = await TestDaemon.start({ audit: true });
    const { id } = await daemon.place();
    await expect(daemon.http.lines("audit", { params: { ref: id } })).rejects.toMatchObject({
      code: "audit_unavailable",
      message: expect.stringContaining("cannot be seen") as string,
    });
    const metrics = await daemon.metrics();
    for (const line of ['events_total{kind="exec"} 0', "lost_total 0", "interruptions_total 0"])
      expect(metrics).toContain(`dsec_audit_${line}\n`);
  },
);

test("a daemon that cannot audit and is told to does not start, and says what is missing", async () => {
  const directory = await temporaryDir();
  await chown(directory, 65_534, 65_534);
  const options = { ...testOptions(directory), logLevel: "silent", audit: true };
  const daemon = fileURLToPath(new URL("../../../src/daemon/daemon.ts", import.meta.url));
  const script = `
    const { startDaemon } = await import(${JSON.stringify(daemon)});
    const { code, message, details } = await startDaemon(${JSON.stringify(options)}).catch((error) => error);
    console.log(JSON.stringify({ code, message, details }));`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    uid: 65_534,
    gid: 65_534,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [printed] = await once(child.stdout, "data");
  expect(JSON.parse(String(printed))).toEqual({
    code: "audit_unavailable",
    message: "processes of sandboxes cannot be audited here: it takes root",
    details: { fix: "run the daemon as root" },
  });
});
