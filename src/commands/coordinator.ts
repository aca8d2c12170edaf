import { startCoordinatorHere } from "./coordinator-process.ts";
import { stopSignal } from "./interrupt.ts";
import { makeDirectories } from "./directories.ts";
import { note } from "./io.ts";
import { readPem } from "../sdk/open-connection.ts";
import { nodeOptions, readTls, tlsOptions } from "./node-options.ts";
import { many, text } from "./option.ts";
import { done } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

export const coordinator = defineVerb({
  description:
    "Listens on unix:<run>/coordinator.sock and wherever else --listen says; daemons register with it. Its token, for\n" +
    "clients and daemons, is in <data>/token. Logs to stderr; ends on SIGTERM. It holds nothing of sandboxes: it can be\n" +
    "restarted at any time.",
  examples: ["dsec coordinator --listen https://0.0.0.0:7443 --tls-cert lab.pem --tls-key lab.key"],
  options: {
    listen: many(
      "--listen <address>",
      "http://127.0.0.1:port or https://host:port; may be repeated",
      (given) => given,
    ),
    ...tlsOptions,
    nodeCa: text("--node-ca <file>", "certificate authority of daemons' https addresses, PEM"),
    logLevel: nodeOptions.logLevel,
  },
  run: async ({ io, settings }, options) => {
    const { listen, nodeCa, logLevel } = options;
    const resolved = await settings();
    await makeDirectories(resolved);
    const asked = Promise.withResolvers<undefined>();
    const running = await startCoordinatorHere({
      settings: resolved,
      listen,
      tls: await readTls(options),
      nodes: [],
      nodeCa: nodeCa === undefined ? undefined : await readPem(nodeCa),
      logLevel,
      onShutdown: () => asked.resolve(undefined),
    });
    note(io, `the coordinator listens on ${running.addresses.join(", ")}`);
    await Promise.race([stopSignal(), asked.promise]);
    await running.close();
    return done;
  },
});
