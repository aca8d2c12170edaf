import Docker from "dockerode";
import { expect, test } from "vitest";
import { containerNode } from "../container-fixture.ts";
import { tracesOf } from "../temporary-node.ts";
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
