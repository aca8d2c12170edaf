import { join } from "node:path";
import type { Settings } from "../sdk/settings.ts";
import { reportFailure, reportReady, startInBackground } from "./background.ts";
import { startCoordinatorHere } from "./coordinator-process.ts";
import { makeDirectories } from "./directories.ts";
import { newToken } from "./fleet-token.ts";
import { stopSignal } from "./interrupt.ts";
import { note } from "./io.ts";
import { nodeOptions, nodeSettings, readTls, tlsOptions } from "./node-options.ts";
import { flag, many, text } from "./option.ts";
import type { OptionValues } from "./option.ts";
import { done } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

/** Of the one node; part of every sandbox id. */
const localName = "local";

const upOptions = {
  detach: flag("-d, --detach", "in the background; returns when the fleet answers"),
  name: text("--name <name>", `name of the node, part of every sandbox id; ${localName} unless given`),
  listen: many(
    "--listen <address>",
    "listen here too: http://127.0.0.1:port, https://host:port",
    (given) => given,
  ),
  ...tlsOptions,
  ...nodeOptions,
};
type UpValues = OptionValues<typeof upOptions>;

export const up = defineVerb({
  description:
    "Coordinator and daemon in one process, joined by the same wire as on many machines. Ctrl-C or SIGTERM ends it, and its\n" +
    "sandboxes go on: the next `dsec up` takes them up again. `dsec down` ends them too. With -d the log is in\n" +
    "<data>/dsec.log.",
  examples: ["dsec up -d", "dsec up --listen https://0.0.0.0:7443 --tls-cert lab.pem --tls-key lab.key"],
  options: upOptions,
  run: async ({ io, settings }, options) => {
    const resolved = await settings();
    await makeDirectories(resolved);
    if (options.detach) {
      const logFile = join(resolved.dataDir, "dsec.log");
      const argv = process.argv.slice(2).filter((argument) => argument !== "-d" && argument !== "--detach");
      const { pid, notes } = await startInBackground({ argv, logFile });
      note(io, `the fleet is up (process ${pid}, log ${logFile})`);
      for (const line of notes) note(io, line);
      return done;
    }
    const fleet = await start(options, resolved, io.env).catch((error: unknown) => {
      reportFailure(error);
      throw error;
    });
    note(io, `the fleet is up on ${fleet.addresses.join(", ")}`);
    const shortcoming = await fleet.shortcoming;
    const notes = shortcoming === undefined ? [] : [`${shortcoming}; dsec doctor says more`];
    for (const line of notes) note(io, line);
    reportReady(notes);
    await Promise.race([stopSignal(), fleet.asked]);
    await fleet.close();
    return done;
  },
});

interface LocalFleet {
  readonly addresses: readonly string[];
  readonly shortcoming: Promise<string | undefined>;
  /** Resolves when a client has asked for the end (`dsec down`). */
  readonly asked: Promise<void>;
  close(): Promise<void>;
}

async function start(
  options: UpValues,
  settings: Settings,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<LocalFleet> {
  const { name = localName, listen, logLevel } = options;
  const tls = await readTls(options);
  const { startDaemon } = await import("../daemon/daemon.ts");
  const token = newToken();
  const daemon = await startDaemon({ name, ...nodeSettings(options, settings, environment), token });
  const asked = Promise.withResolvers<void>();
  try {
    const coordinator = await startCoordinatorHere({
      settings,
      listen,
      tls,
      nodes: [{ name, address: daemon.address, token, local: daemon.server }],
      logLevel,
      onShutdown: () => asked.resolve(),
    });
    return {
      addresses: coordinator.addresses,
      shortcoming: daemon.shortcoming,
      asked: asked.promise,
      async close() {
        await daemon.close();
        // last: `dsec down` waits for its socket to go
        await coordinator.close();
      },
    };
  } catch (error) {
    await daemon.close();
    throw error;
  }
}
