import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { pino } from "pino";
import { expect, onTestFinished, vi } from "vitest";
import { startDaemon } from "../../src/daemon/daemon.ts";
import { openLayerStore } from "../../src/daemon/layers/layer-store.ts";
import type { DaemonOptionsInput } from "../../src/daemon/options.ts";
import { type AtEnd, TestDaemon, testOptions } from "./daemon-fixture.ts";
import { temporaryNode, tracesOf } from "./temporary-node.ts";

/**
 * A node with a busybox layer; it is an error if anything of it is left on the machine at the end.
 *
 * @param atEnd of the test, unless it is for more than one
 */
export async function containerNode(atEnd: AtEnd = onTestFinished) {
  const node = await temporaryNode();
  const { networkRange, dataDir, runDir, layerStore, instance } = node;
  const options: Partial<DaemonOptionsInput> = {
    dataDir,
    runDir,
    layerStore,
    instance,
    networkRange,
    backends: ["runc"],
  };
  atEnd(async () => {
    const traces = async (): Promise<string[]> => [
      ...(await tracesOf(node)),
      ...(await cgroupsOf(node.instance)),
    ];
    try {
      await vi.waitFor(async () => expect(await traces()).toEqual([]), { timeout: 10_000 });
    } finally {
      // a test that failed halfway has left sandboxes without a daemon
      if ((await traces()).length > 0) await sweepUp({ ...testOptions(node.directory), ...options });
      await node[Symbol.asyncDispose]();
    }
  });
  await (await openLayerStore(node.layerStore)).build({ reference: "busybox", from: "busybox" });
  return {
    node,
    /** The first, or the next on the same node. */
    start: async (more: Partial<DaemonOptionsInput> = {}): Promise<TestDaemon> =>
      TestDaemon.start({ ...options, ...more, dir: node.directory }, {}, atEnd),
  };
}

export const busybox = { backend: "container", image: "busybox", memoryMb: 64, diskMb: 64 } as const;

async function sweepUp(options: DaemonOptionsInput): Promise<void> {
  const daemon = await startDaemon(options, { log: pino({ level: "silent" }) });
  await daemon.close({ stopSandboxes: true });
}

/** Control groups of the instance, in whatever hierarchies the machine has. */
async function cgroupsOf(instance: string): Promise<string[]> {
  const hierarchies = ["", ...(await readdir("/sys/fs/cgroup"))].map((name) => `/sys/fs/cgroup/${name}`);
  const paths = hierarchies.map((hierarchy) => `${hierarchy}/${instance}`);
  return paths.filter((path) => existsSync(path));
}
