import { expect, test } from "vitest";
import { nodeOptions } from "../../src/commands/node-options.ts";
import type { OptionSpecs } from "../../src/commands/option.ts";
import { sandboxOptions } from "../../src/commands/sandbox-options.ts";
import { parseDaemonOptions } from "../../src/daemon/options.ts";
import { SandboxSpec } from "../../src/protocol/sandbox.ts";

/** What the help says of flags that are not given, as the flag would read it. */
function said(options: OptionSpecs, names: readonly string[]): Record<string, unknown> {
  const values = names.map((name) => {
    const option = options[name];
    const [, text = ""] = /(?:.*; )?(\S+) unless given$/.exec(option?.help ?? "") ?? [];
    return [name, option?.parse?.(text, undefined)];
  });
  return Object.fromEntries(values);
}

test("what the help says of a sandbox's flags that are not given is what the fleet then takes", () => {
  const spec = SandboxSpec.parse({ image: "x" });
  const defaults = {
    ttl: spec.ttlRunningStop,
    maxLifetime: spec.maxLifetime,
    memory: spec.memoryMb,
    cpus: spec.cpus,
    pids: spec.pidsLimit,
    disk: spec.diskMb,
    class: spec.class,
    pull: spec.pull,
  };
  expect(said(sandboxOptions, Object.keys(defaults))).toEqual(defaults);
});

test("and of a node's flags what the daemon then takes", () => {
  const options = parseDaemonOptions({ name: "n", dataDir: "/d", runDir: "/r", token: "x".repeat(16) });
  const { networkRange, maxSandboxes, memoryOvercommit, keepEnded, logLevel } = options;
  const defaults = {
    networkRange,
    maxSandboxes,
    memoryOvercommit,
    memoryFloor: options.memoryFloorMb,
    diskFloor: options.diskFloorMb,
    keepEnded,
    logLevel,
  };
  expect(said(nodeOptions, Object.keys(defaults))).toEqual(defaults);
});
