import Docker from "dockerode";
import { expect, test } from "vitest";
import type { NetworkDecision } from "../../../src/protocol/network-decision.ts";
import { containerNode } from "../container-fixture.ts";
import { output, tracesOf } from "../temporary-node.ts";
import { Internet } from "./internet.ts";
import { networkedEngines } from "./networked-engines.ts";

test("a container is in none of Docker's networks, and its link goes with it when somebody else ends it", async () => {
  const docker = networkedEngines.find(({ engine }) => engine === "docker");
  const { node, start } = await containerNode();
  const daemon = await start(docker?.options());
  const [mine, other] = [await daemon.place(docker?.spec), await daemon.place(docker?.spec)];
  const socketPath = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";
  const container = new Docker({ socketPath, host: "" }).getContainer(`${node.instance}-${mine.id}`);
  const { NetworkSettings } = await container.inspect();
  expect(Object.keys(NetworkSettings.Networks)).toEqual(["none"]);
  const routes = async () =>
    (await tracesOf(node)).filter((trace) => trace.includes("scope link")).join("\n");
  expect(await routes()).toContain(` ${mine.address} `);
  await container.kill();
  expect(await daemon.wait(mine.id)).toMatchObject({ endReason: "agent_lost" });
  expect(await routes()).not.toContain(` ${mine.address} `);
  expect(await routes()).toContain(` ${other.address} `);
});

test("a node that offers docker alone prepares no roots, and its containers have a network all the same, after a restart of the daemon, too", async () => {
  await using internet = await Internet.start();
  const docker = networkedEngines.find(({ engine }) => engine === "docker");
  const { node, start } = await containerNode();
  const options = { ...docker?.options(), backends: ["docker" as const], maxFlows: 100 };
  const daemon = await start(options);
  const sandbox = await daemon.place({ ...docker?.spec, networkRules: { [internet.address(1)]: true } });
  const reach = async (of: typeof daemon, server: number) =>
    (await of.run(sandbox.id, ["sh", "-c", `echo hello | nc -w 2 ${internet.address(server)} 7`])).stdout;
  expect(await reach(daemon, 1)).toBe("hello\n");
  expect(await reach(daemon, 2)).toBe("");
  await expect(daemon.place({ ...docker?.spec, engine: "runc" })).rejects.toMatchObject({
    code: "backend_unavailable",
  });
  const decisions: NetworkDecision[] = [];
  const log = await daemon.http.lines<NetworkDecision>("networkLog", { params: { ref: sandbox.id } });
  for await (const decision of log) decisions.push(decision);
  expect(decisions).toContainEqual(
    expect.objectContaining({ address: internet.address(2), allowed: false, by: { kind: "default" } }),
  );
  expect(await output("nft", "list", "chain", "inet", node.instance, "flows")).toContain(
    "ct count over 100 ",
  );
  expect((await tracesOf(node)).filter((trace) => trace.startsWith("mount"))).toEqual([]);
  await daemon.leave();
  const next = await start(options);
  await next.running.recovered;
  expect(await reach(next, 1)).toBe("hello\n");
  expect(await reach(next, 2)).toBe("");
});
