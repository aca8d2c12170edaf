import { DSecError } from "../protocol/errors.ts";
import { sandboxView } from "./columns.ts";
import { formatsFrom } from "./format.ts";
import { parseKeyValue } from "./key-value.ts";
import { many, parseCount, parseNumber, value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { defined } from "./sandbox-options.ts";
import { forEachSandbox } from "./selection.ts";
import { parseMebibytes } from "./size.ts";
import { defineVerb } from "./verb.ts";

export const update = defineVerb({
  description: "Takes effect at once, without a restart: all of it or nothing. Prints the ids.",
  operands: "<ref...>",
  examples: ["dsec update web-1 --memory 1g --cpus 2", "dsec update web-1 --cpu-limit none"],
  options: {
    memory: value("-m, --memory <size>", "memory limit: 512m, 2g", parseMebibytes),
    cpus: value("--cpus <cores>", "cores asked for: a share of the machine, no ceiling", parseNumber),
    cpuLimit: value("--cpu-limit <cores>", "hard ceiling in cores, or none", (given) =>
      given === "none" ? given : parseNumber(given),
    ),
    pids: value("--pids <count>", "processes it may have", parseCount),
    labels: many("-l, --label <key=value>", "label to set; repeated. The others are kept", parseKeyValue),
  },
  formats: formatsFrom("name"),
  run: async ({ client }, options, refs) => {
    const { memory, cpus, cpuLimit, pids, labels } = options;
    const ceiling = cpuLimit === "none" ? null : cpuLimit;
    const limits = defined({ memoryMb: memory, cpus, cpuLimit: ceiling, pidsLimit: pids });
    if (Object.keys(limits).length === 0 && labels.length === 0)
      throw new DSecError(
        "invalid_argument",
        "nothing to change: give --memory, --cpus, --cpu-limit, --pids or -l",
      );
    const fleet = await client();
    const { rows, failures } = await forEachSandbox(refs, async (ref) => {
      const sandbox = await fleet.get(ref);
      const relabelled =
        labels.length === 0 ? {} : { labels: { ...sandbox.info.labels, ...Object.fromEntries(labels) } };
      return sandbox.update({ ...limits, ...relabelled });
    });
    return { type: "listing", listing: listingOf(sandboxView, rows), failures };
  },
});
