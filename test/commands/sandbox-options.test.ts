import { expect, test } from "vitest";
import { sandboxOptions } from "../../src/commands/sandbox-options.ts";
import { SandboxSpec } from "../../src/protocol/sandbox.ts";

test("what the help says of flags that are not given is what the fleet then takes", () => {
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
  const said = Object.keys(defaults).map((name) => {
    const option = sandboxOptions[name as keyof typeof defaults];
    const [, text = ""] = /(?:.*; )?(\S+) unless given$/.exec(option.help) ?? [];
    return [name, option.parse?.(text, undefined)];
  });
  expect(Object.fromEntries(said)).toEqual(defaults);
});
