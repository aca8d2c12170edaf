import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { DSecClient } from "../../src/sdk/index.ts";
import { TestFleet } from "./fleet-fixture.ts";

/** A certificate for 127.0.0.1 that is its own authority. */
async function selfSigned(): Promise<{ cert: string; key: string }> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-tls-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  const [cert, key] = [join(dir, "cert.pem"), join(dir, "key.pem")];
  const request = [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
    "-days",
    "2",
  ];
  const name = ["-subj", "/CN=dsec test", "-addext", "subjectAltName=IP:127.0.0.1"];
  execFileSync("openssl", [...request, ...name, "-keyout", key, "-out", cert], { stdio: "ignore" });
  return { cert: await readFile(cert, "utf8"), key: await readFile(key, "utf8") };
}

describe("over TLS on both hops", () => {
  test("sandboxes are made, commands run, lists and watches work", async () => {
    const tls = await selfSigned();
    const fleet = await TestFleet.start([], {
      coordinator: { listen: ["https://127.0.0.1:0"], tls, nodeCa: tls.cert },
      ca: tls.cert,
    });
    await fleet.startNode("n1", { listen: "https://127.0.0.1:0", tls });
    await fleet.register("n1", fleet.daemons.get("n1")?.address ?? "", fleet.nodeToken);
    const sandbox = await fleet.create();
    const bytes = Buffer.alloc(1_000_000, "abc");
    expect((await sandbox.exec(["cat"], { stdin: bytes })).stdoutBytes.equals(bytes)).toBe(true);
    expect((await fleet.client.list()).items.map(({ id }) => id)).toEqual([sandbox.id]);
    const { value } = await fleet.client.watch().next();
    expect(value).toMatchObject({ type: "snapshot", sandbox: { id: sandbox.id } });
  });

  test("a server whose authority is not trusted is unreachable, and is sent nothing", async () => {
    const tls = await selfSigned();
    const fleet = await TestFleet.start([], {
      coordinator: { listen: ["https://127.0.0.1:0"], tls },
      ca: tls.cert,
    });
    const [address = ""] = fleet.coordinator.addresses;
    await using client = await DSecClient.open({ address, token: fleet.coordinator.token });
    await expect(client.version()).rejects.toMatchObject({
      code: "coordinator_unreachable",
      ambiguous: false,
    });
    const exec = client.get("n1-aaaaaaaaaa");
    await expect(exec).rejects.toMatchObject({ code: "coordinator_unreachable" });
  });
});
