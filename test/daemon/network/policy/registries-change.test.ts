import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { NetworkProbeResult } from "../../../../src/protocol/network-decision.ts";
import type { SandboxEvent } from "../../../../src/protocol/sandbox.ts";
import { busybox, containerNode } from "../../container-fixture.ts";

test("what a registry stands for changes under a running sandbox; one that is gone closes everything", async () => {
  const { node, start } = await containerNode();
  const file = join(node.directory, "registries.yaml");
  await writeFile(file, "corp: { cidrs: [198.51.100.0/24] }");
  const daemon = await start({ registries: { file } });
  const { id } = await daemon.place({ ...busybox, networkRules: { corp: true, "203.0.113.0/24": true } });
  const verdicts = async (): Promise<(string | undefined)[]> => {
    const hosts = ["198.51.100.1", "192.0.2.1", "203.0.113.1"];
    const asked = hosts.map(async (host) => {
      const body = { host, port: 443 };
      const [found] = (
        await daemon.http.json<NetworkProbeResult>("testNetwork", { params: { ref: id }, body })
      ).addresses;
      return found?.by.kind === "rule" ? found.by.text : found?.by.kind;
    });
    return Promise.all(asked);
  };
  const soon = { timeout: 20_000, interval: 250 };
  expect(await verdicts()).toEqual(["allow corp", "default", "allow 203.0.113.0/24"]);
  expect((await daemon.get(id)).networkCounters).toMatchObject({ allowed: 0, cut: 0 });

  await writeFile(file, "corp: { cidrs: [192.0.2.0/24] }");
  await expect.poll(verdicts, soon).toEqual(["default", "allow corp", "allow 203.0.113.0/24"]);

  await writeFile(file, "other: { cidrs: [192.0.2.0/24] }");
  await expect.poll(verdicts, soon).toEqual(["default", "default", "default"]);
  const { items } = await daemon.http.json<{ items: SandboxEvent[] }>("listEvents", { params: { ref: id } });
  expect(items.at(-1)?.message).toMatch(/^everything is refused until it is given another policy: .* corp/);
  await expect(daemon.place({ ...busybox, networkRules: { corp: true } })).rejects.toMatchObject({
    code: "unknown_registry",
  });

  expect(await daemon.http.json("getSandboxPolicy", { params: { ref: id } })).toMatchObject({
    rules: 2,
    warnings: [expect.stringMatching(/^everything is refused: .* corp/)],
  });

  const given = { policy: { default: "allow", rules: [] } };
  await daemon.http.json("applyPolicy", { body: { given, to: { refs: [id] } } });
  expect(await verdicts()).toEqual(["default", "default", "default"]);
  expect((await daemon.get(id)).networkPolicy).toMatchObject({ default: "allow", revision: 2 });
});
