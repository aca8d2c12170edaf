import type { BackendReport } from "../protocol/node.ts";
import type { Backend } from "./backend.ts";

export interface BackendOptions {
  /** Names what is machine-wide: cgroups, labels. */
  readonly instance: string;
  /** Where runc keeps sockets, bundles and state. */
  readonly runDir: string;
  /** The built agent. */
  readonly agentPath: string;
  /** Path of the Docker daemon's socket; without it DOCKER_HOST, else Docker's default. */
  readonly dockerSocket?: string;
  /** By engine where there is one, else by kind; without it, all. */
  readonly only?: readonly BackendName[];
}

export type BackendName = "runc" | "docker" | "simulated";

export interface Backends {
  readonly backends: readonly Backend[];
  /** Those whose code could not even be loaded (e.g. a native dependency without a build for this machine). */
  readonly broken: readonly BackendReport[];
}

type Entry = Pick<BackendReport, "backend" | "engine"> & {
  readonly name: BackendName;
  readonly load: (options: BackendOptions) => Promise<Backend>;
};

const entries: readonly Entry[] = [
  {
    name: "runc",
    backend: "container",
    engine: "runc",
    load: async ({ instance, runDir }) =>
      new (await import("./container/runc/runc-backend.ts")).RuncBackend({ instance, runDir }),
  },
  {
    name: "docker",
    backend: "container",
    engine: "docker",
    load: async ({ instance, agentPath, dockerSocket }) => {
      const { DockerBackend } = await import("./container/docker/docker-backend.ts");
      const socket = dockerSocket === undefined ? {} : { socketPath: dockerSocket };
      return new DockerBackend({ instance, agentPath, ...socket });
    },
  },
  {
    name: "simulated",
    backend: "simulated",
    load: async () => new (await import("./simulated/simulated-backend.ts")).SimulatedBackend(),
  },
];

/** Creates the backends a daemon has. Each is imported by itself, so that one that cannot be loaded leaves the others. */
export async function createBackends(options: BackendOptions): Promise<Backends> {
  const backends: Backend[] = [];
  const broken: BackendReport[] = [];
  const wanted = entries.filter(({ name }) => options.only?.includes(name) ?? true);
  for (const { backend, engine, load } of wanted) {
    try {
      backends.push(await load(options));
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      broken.push({
        backend,
        ...(engine === undefined ? {} : { engine }),
        works: false,
        findings: [{ level: "error", message: `cannot be loaded: ${message}`, fix: "npm ci" }],
      });
    }
  }
  return { backends, broken };
}
