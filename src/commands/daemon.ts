import { expectManyBuffers } from "./buffer-memory.ts";
import { DSecError } from "../protocol/errors.ts";
import { makeDirectories } from "./directories.ts";
import { newToken } from "./fleet-token.ts";
import { stopSignal } from "./interrupt.ts";
import { defaultNodeName, nodeOptions, nodeSettings, readTls, tlsOptions } from "./node-options.ts";
import { text } from "./option.ts";
import { done } from "./outcome.ts";
import { defined } from "./sandbox-options.ts";
import { readTokenFile } from "./token-file.ts";
import { defineVerb } from "./verb.ts";

export const daemon = defineVerb({
  description:
    "One node of a fleet of several machines; `dsec up` is daemon and coordinator in one. Logs to stderr. On SIGTERM it\n" +
    "ends and its sandboxes go on; the next one takes them up again. The name is part of every sandbox id: keep it.\n" +
    "--token-file is the coordinator's. Authorities of your own: NODE_EXTRA_CA_CERTS.",
  examples: [
    "dsec daemon --coordinator https://lab.example:7443 --token-file /etc/dsec/token \\",
    "  --listen https://0.0.0.0:7444 --tls-cert node.pem --tls-key node.key --advertise https://node-7.example:7444",
  ],
  options: {
    name: text("--name <name>", "name of the node; this machine's unless given"),
    coordinator: text("--coordinator <address>", "where to register"),
    listen: text("--listen <address>", "where to listen; unix:<run>/daemon.sock unless given"),
    advertise: text("--advertise <address>", "where the coordinator finds it; where it listens unless given"),
    ...tlsOptions,
    ...nodeOptions,
  },
  run: async ({ io, settings }, options) => {
    const { name = defaultNodeName(), coordinator, listen, advertise } = options;
    if (coordinator === undefined)
      throw new DSecError("invalid_argument", "--coordinator says where to register, and is needed");
    const resolved = await settings();
    await makeDirectories(resolved);
    const token = resolved.token ?? (await readTokenFile(resolved.tokenFile));
    const tls = await readTls(options);
    expectManyBuffers();
    const { startDaemon } = await import("../daemon/daemon.ts");
    const running = await startDaemon({
      name,
      ...nodeSettings(options, resolved, io.env),
      ...defined({ listen, tls }),
      token: newToken(),
      coordinator: { address: coordinator, token, ...defined({ advertise }) },
    });
    await stopSignal();
    await running.close();
    return done;
  },
});
