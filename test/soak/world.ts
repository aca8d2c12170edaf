import { webSocketScript } from "../e2e/inside-services.ts";
import type { Fleet } from "../e2e/fleet.ts";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import type { Random } from "./random.ts";
import { Tree, treeRoot } from "./tree.ts";

/** What a live shell should remember. */
export interface SessionModel {
  cwd: string;
  umask: number;
  readonly shellVariables: Map<string, string>;
  readonly exported: Map<string, string>;
  /** Name to the constant that its output has. */
  readonly functions: Map<string, string>;
  counter: number;
}

/** What a sandbox has on its ports. */
export const ports = { http: 8080, echo: 7000, webSocket: 7002, nobody: 9 } as const;
/** Where files with odd names are. */
export const oddDirectory = "/soak/odd";
/** Directories that sessions go to; nothing removes them. */
export const directories = ["/", "/tmp", "/bin", "/soak/a", "/soak/b c", "/soak/ünï"] as const;
/** Pages of the sandbox's HTTP server by name. */
export const pages: ReadonlyMap<string, Buffer> = new Map([
  ["empty.txt", Buffer.alloc(0)],
  ["small.txt", Buffer.from("grüße\n")],
  ["large.txt", Buffer.from("0123456789abcdef".repeat(20_000))],
]);

/** As CGI: gives back what was posted, and as many events as it was asked for. */
const programs = {
  echo: `#!/bin/sh
printf 'content-type: application/octet-stream\\r\\n\\r\\n'
exec head -c "$CONTENT_LENGTH"
`,
  events: `#!/bin/sh
printf 'content-type: text/event-stream\\r\\n\\r\\n'
for number in $(seq "$QUERY_STRING"); do printf 'data: %s\\n\\n' "$number"; usleep 5000; done
`,
} as const;

/** What sandboxes are made of. */
export type Engine = "runc" | "docker";
const images = { runc: "busybox", docker: "dsec-test-busybox:latest" } as const;

/** One sandbox and the model of all that is in it. */
export interface World {
  readonly client: DSecClient;
  readonly dsec: Fleet["dsec"];
  readonly engine: Engine;
  readonly random: Random;
  /** Whether its sandbox lives as long as the soak: what grows with every operation is seen there. */
  readonly stays: boolean;
  sandbox: Sandbox;
  tree: Tree;
  /** Content by name, of which each byte is one character. */
  oddFiles: Map<string, Buffer>;
  /** By name. */
  sessions: Map<string, SessionModel>;
  /** Shells that each session has lost. */
  restarts: Map<string, number>;
  labels: Record<string, string>;
  /** Counts up, for names that must be new. */
  serial: number;
}

export async function makeWorld(
  given: Pick<World, "client" | "dsec" | "engine" | "random" | "stays">,
): Promise<World> {
  return { ...given, serial: 0, ...(await freshState(given)) };
}

async function freshState({ client, engine }: Pick<World, "client" | "engine">) {
  return {
    sandbox: await makeSandbox(client, engine),
    tree: new Tree(),
    oddFiles: new Map<string, Buffer>(),
    sessions: new Map<string, SessionModel>(),
    restarts: new Map<string, number>(),
    labels: {},
  };
}

/** Another sandbox in the place of this one, of which nothing is known any more. */
export async function replaceSandbox(world: World): Promise<void> {
  await world.sandbox.remove();
  Object.assign(world, await freshState(world));
}

export function freshSession(): SessionModel {
  return {
    cwd: "/tmp",
    umask: 0o022,
    shellVariables: new Map(),
    exported: new Map(),
    functions: new Map(),
    counter: 0,
  };
}

async function makeSandbox(client: DSecClient, engine: Engine): Promise<Sandbox> {
  const sandbox = await client.runContainer({
    image: images[engine],
    engine,
    memoryMb: 128,
    workdir: "/tmp",
    ttlRunningStop: 3600,
  });
  const made = ["/soak/www/cgi-bin", oddDirectory, treeRoot, ...directories]
    .map((path) => `'${path}'`)
    .join(" ");
  const set = await sandbox.exec(["sh", "-c", `umask 022; mkdir -p ${made}`]);
  if (set.exitCode !== 0) throw new Error(`a sandbox could not be set up: ${set.stderr}`);
  for (const [name, content] of pages) await sandbox.files.write(`/soak/www/${name}`, content);
  for (const [name, script] of Object.entries(programs))
    await sandbox.files.write(`/soak/www/cgi-bin/${name}`, script, { mode: 0o755 });
  await sandbox.files.write("/soak/ws", webSocketScript, { mode: 0o755 });
  await sandbox.execDetached(["httpd", "-f", "-p", `127.0.0.1:${ports.http}`, "-h", "/soak/www"]);
  await sandbox.execDetached(["nc", "-ll", "-p", `${ports.echo}`, "-e", "cat"]);
  await sandbox.execDetached(["nc", "-ll", "-p", `${ports.webSocket}`, "-e", "/soak/ws"]);
  const all = [ports.http, ports.echo, ports.webSocket].map((port) => `netstat -ltn | grep -q :${port}`);
  const listening = `until ${all.join(" && ")}; do usleep 10000; done`;
  const { exitCode } = await sandbox.exec(["sh", "-c", listening], { timeoutMs: 30_000 });
  if (exitCode !== 0) throw new Error("the servers in a sandbox do not listen");
  return sandbox;
}
