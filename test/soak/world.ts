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
export const ports = { http: 8080, echo: 7000, nobody: 9 } as const;
/** Directories that sessions go to; nothing removes them. */
export const directories = ["/", "/tmp", "/bin", "/soak/a", "/soak/b c", "/soak/ünï"] as const;
/** Pages of the sandbox's HTTP server by name. */
export const pages: ReadonlyMap<string, Buffer> = new Map([
  ["empty.txt", Buffer.alloc(0)],
  ["small.txt", Buffer.from("grüße\n")],
  ["large.txt", Buffer.from("0123456789abcdef".repeat(20_000))],
]);

/** One sandbox and the model of all that is in it. */
export interface World {
  readonly client: DSecClient;
  readonly random: Random;
  /** Whether its sandbox lives as long as the soak: what grows with every operation is seen there. */
  readonly stays: boolean;
  sandbox: Sandbox;
  tree: Tree;
  /** By name. */
  sessions: Map<string, SessionModel>;
  /** Shells that each session has lost. */
  restarts: Map<string, number>;
  labels: Record<string, string>;
  /** Counts up, for names that must be new. */
  serial: number;
}

export async function makeWorld(client: DSecClient, random: Random, stays: boolean): Promise<World> {
  return {
    client,
    random,
    stays,
    sandbox: await makeSandbox(client),
    tree: new Tree(),
    sessions: new Map(),
    restarts: new Map(),
    labels: {},
    serial: 0,
  };
}

/** Another sandbox in the place of this one, of which nothing is known any more. */
export async function replaceSandbox(world: World): Promise<void> {
  await world.sandbox.remove();
  Object.assign(world, {
    sandbox: await makeSandbox(world.client),
    tree: new Tree(),
    sessions: new Map(),
    restarts: new Map(),
    labels: {},
  });
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

async function makeSandbox(client: DSecClient): Promise<Sandbox> {
  const sandbox = await client.runContainer({
    image: "busybox",
    engine: "runc",
    memoryMb: 128,
    workdir: "/tmp",
    ttlRunningStop: 3600,
  });
  const made = ["/soak/www", treeRoot, ...directories].map((path) => `'${path}'`).join(" ");
  const set = await sandbox.exec(["sh", "-c", `umask 022; mkdir -p ${made}`]);
  if (set.exitCode !== 0) throw new Error(`a sandbox could not be set up: ${set.stderr}`);
  for (const [name, content] of pages) await sandbox.files.write(`/soak/www/${name}`, content);
  await sandbox.execDetached(["httpd", "-f", "-p", `127.0.0.1:${ports.http}`, "-h", "/soak/www"]);
  await sandbox.execDetached(["nc", "-ll", "-p", `${ports.echo}`, "-e", "cat"]);
  const listening = `until netstat -ltn | grep -q :${ports.http} && netstat -ltn | grep -q :${ports.echo}; do usleep 10000; done`;
  const { exitCode } = await sandbox.exec(["sh", "-c", listening], { timeoutMs: 30_000 });
  if (exitCode !== 0) throw new Error("the servers in a sandbox do not listen");
  return sandbox;
}
