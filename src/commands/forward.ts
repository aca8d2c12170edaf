import { DSecError } from "../protocol/errors.ts";
import type { PortForward, Sandbox } from "../sdk/index.ts";
import { untilInterrupted } from "./interrupt.ts";
import { write } from "./io.ts";
import type { Io } from "./io.ts";
import { text } from "./option.ts";
import { reportError } from "./report-error.ts";
import { painter } from "./theme.ts";
import { defineVerb } from "./verb.ts";

interface Ports {
  readonly local: number;
  readonly remote: number;
}

export const forward = defineVerb({
  description:
    "PORT is REMOTE (the same port here), LOCAL:REMOTE, or :REMOTE for any free port here. Prints a line per port when it\n" +
    "listens, and goes on until ctrl-c or the sandbox's end. Services that listen on the sandbox's loopback only are\n" +
    "reached, too. Connections that fail are reset, with the reason on stderr.",
  operands: "<ref> <port...>",
  examples: [
    "dsec forward web-1 8080",
    "dsec forward web-1 9000:80 :5432",
    "dsec forward --bind 0.0.0.0 web-1 8080",
  ],
  options: {
    bind: text(
      "--bind <address>",
      "listen on this address; by default only programs on this machine can connect",
    ),
  },
  run: async ({ io, client }, { bind }, [ref = "", ...given]) => {
    const ports = given.map(parsePorts);
    const sandbox = await (await client()).get(ref);
    return untilInterrupted(async (signal) => {
      const forwards: PortForward[] = [];
      try {
        for (const { local, remote } of ports)
          forwards.push(await listen(sandbox, { local, remote }, bind, io));
        for (const { host, port, remote } of forwards)
          await write(io.stdout, `${host}:${port} -> ${remote}\n`);
        const { state, endReason } = await sandbox.wait({ signal });
        throw new DSecError("sandbox_not_running", `sandbox ${sandbox.id} is ${state}`, {
          details: { state, ...(endReason === undefined ? {} : { endReason }) },
        });
      } finally {
        await Promise.all(forwards.map(async (each) => each.close()));
      }
    });
  },
});

async function listen(
  sandbox: Sandbox,
  { local, remote }: Ports,
  bind: string | undefined,
  io: Io,
): Promise<PortForward> {
  return sandbox.forward({
    remote,
    local,
    ...(bind === undefined ? {} : { host: bind }),
    onError: (error) => reportError(error, io, { json: false, paint: painter(false) }),
  });
}

/** @throws DSecError `invalid_argument` */
function parsePorts(given: string): Ports {
  const [, first = "", colon, second = ""] = /^(\d*)(?:(:)(\d+))?$/.exec(given) ?? [];
  const remote = portOf(given, colon === undefined ? first : second);
  if (colon === undefined) return { local: remote, remote };
  return { local: first === "" || first === "0" ? 0 : portOf(given, first), remote };
}

function portOf(given: string, digits: string): number {
  const port = Number(digits);
  if (digits !== "" && port >= 1 && port <= 65_535) return port;
  throw new DSecError(
    "invalid_argument",
    `port: ${JSON.stringify(given)} is not REMOTE, LOCAL:REMOTE or :REMOTE with ports from 1 to 65535`,
  );
}
