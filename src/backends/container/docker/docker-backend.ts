import { closeSync } from "node:fs";
import Docker from "dockerode";
import type { ContainerInspectInfo } from "dockerode";
import { AgentConnection } from "../../../agent/connection.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { BackendReport } from "../../../protocol/node.ts";
import type { Backend, BackendCapabilities, Json, PreparedLink, StartRequest } from "../../backend.ts";
import { startAborted } from "../../start-aborted.ts";
import { abortable } from "./abortable.ts";
import { agentArchive } from "./agent-archive.ts";
import { attach, reattach } from "./agent-link.ts";
import type { AttachStream } from "./attach-stream.ts";
import { openContainerNetwork } from "./container-network.ts";
import { containerName, containerOptions, labels } from "./container-options.ts";
import { removeContainer } from "./container-removal.ts";
import { asDSecError, connectionCode, statusOf } from "./docker-error.ts";
import type { DockerMachine } from "./docker-machine.ts";
import { examineMachine } from "./docker-machine.ts";
import { probeDocker } from "./docker-probe.ts";
import { DockerRecord } from "./docker-record.ts";
import { DockerSandbox, endFrom } from "./docker-sandbox.ts";
import type { DockerImage } from "./image-store.ts";
import { ImageStore } from "./image-store.ts";

export interface DockerBackendOptions {
  /** Names this daemon's containers among others of the same Docker daemon. */
  readonly instance: string;
  /** The built agent. */
  readonly agentPath: string;
  /** Path of the Docker daemon's socket; without it DOCKER_HOST, else Docker's default. */
  readonly socketPath?: string;
}

const capabilities = {
  root: "image",
  composes: false,
  diskLimit: false,
  updates: new Set(["memoryBytes", "cpus", "cpuLimit", "pids"]),
  adopts: true,
  realProcesses: true,
} as const satisfies Partial<BackendCapabilities>;

/** Removals of leftovers at a time. */
const sweepConcurrency = 4;

/** Containers of a Docker daemon, with the agent as their first process, spoken to over the attach stream. */
export class DockerBackend implements Backend {
  readonly kind = "container";
  readonly engine = "docker";
  readonly #options: DockerBackendOptions;
  readonly #docker: Docker;
  readonly #images: ImageStore;
  readonly #held = new Map<string, DockerSandbox>();
  readonly #starting = new Set<string>();
  #machine: Promise<DockerMachine> | undefined;
  #mountable = true;
  /** False once it is known that the containers' network namespaces cannot be reached from here. */
  #joinable = true;

  constructor(options: DockerBackendOptions) {
    this.#options = options;
    const { socketPath } = options;
    // A host that DOCKER_HOST names would otherwise win over the socket.
    this.#docker = new Docker(socketPath === undefined ? {} : { socketPath, host: "" });
    this.#images = new ImageStore(this.#docker);
  }

  /** Until the Docker daemon has been asked, it is taken to be on this machine. */
  get capabilities(): BackendCapabilities {
    return { ...capabilities, network: this.#joinable ? "joined" : "own" };
  }

  async probe(signal: AbortSignal): Promise<BackendReport> {
    // What fails here is what the report says.
    await abortable(this.#examineMachine(), signal).catch(() => undefined);
    const address = this.#options.socketPath ?? process.env["DOCKER_HOST"] ?? "/var/run/docker.sock";
    return probeDocker({ docker: this.#docker, address, agentPath: this.#options.agentPath }, signal);
  }

  async findImage(reference: string, signal: AbortSignal): Promise<{ readonly digest: string } | undefined> {
    const image = await this.#images.find(reference, signal);
    // Before a policy is judged by what the containers can have. What fails here fails again at the start.
    await abortable(this.#examineMachine(), signal).catch(() => undefined);
    return image === undefined ? undefined : { digest: image.id };
  }

  async start(request: StartRequest, signal: AbortSignal): Promise<DockerSandbox> {
    if (request.root.type !== "image") {
      throw new DSecError("unsupported", "the docker engine starts from images of its Docker daemon only");
    }
    if (this.#starting.has(request.id)) {
      throw new DSecError("conflict", `sandbox ${request.id} is being started already`);
    }
    this.#starting.add(request.id);
    try {
      const image = await this.#images.findOrPull(request.root.reference, request.root.pull, signal);
      return await this.#launch(request, image, signal);
    } catch (error) {
      if (signal.aborted) throw startAborted(signal);
      throw asDSecError(error, "start_failed", "the Docker daemon could not start the container");
    } finally {
      this.#starting.delete(request.id);
    }
  }

  async adopt(id: string, record: Json, signal: AbortSignal): Promise<DockerSandbox> {
    const parsed = DockerRecord.safeParse(record);
    if (!parsed.success) {
      throw new DSecError("agent_lost", `the record of sandbox ${id} cannot be read`, {
        cause: parsed.error,
      });
    }
    const container = this.#docker.getContainer(parsed.data.containerId);
    try {
      assertAdoptable(id, await container.inspect({ abortSignal: signal }), this.#options.instance);
      const { stream, guest } = await reattach(container, signal);
      return await this.#hold(id, parsed.data, stream, guest);
    } catch (error) {
      if (statusOf(error) === 404) {
        throw new DSecError("agent_lost", `the container of sandbox ${id} is gone`, { cause: error });
      }
      if (signal.aborted) throw startAborted(signal);
      throw asDSecError(error, "agent_lost", `the agent of sandbox ${id} could not be reached`);
    }
  }

  async sweep(keep: ReadonlySet<string>, signal: AbortSignal): Promise<string[]> {
    const filters = { label: [`${labels.instance}=${this.#options.instance}`] };
    let found: Docker.ContainerInfo[];
    try {
      found = await this.#docker.listContainers({ all: true, filters, abortSignal: signal });
    } catch (error) {
      // Without a Docker daemon there are no containers.
      if (connectionCode(error) === "ENOENT") return [];
      throw asDSecError(error, "backend_unavailable", "the Docker daemon could not list its containers");
    }
    const strangers = found.filter(({ Labels }) => !keep.has(Labels[labels.id] ?? ""));
    const removed: string[] = [];
    const work = strangers.values();
    const removeSome = async (): Promise<void> => {
      for (const { Id, Labels } of work) {
        const id = Labels[labels.id] ?? Id;
        if (signal.aborted) return;
        // Our own business, started or adopted since `keep` was drawn up.
        if (this.#starting.has(id) || this.#held.has(id)) continue;
        await removeContainer(this.#docker, Id);
        removed.push(id);
      }
    };
    await Promise.all(Array.from({ length: sweepConcurrency }, removeSome));
    return removed;
  }

  async close(): Promise<void> {
    for (const sandbox of this.#held.values()) sandbox.drop();
  }

  async #launch(request: StartRequest, image: DockerImage, signal: AbortSignal): Promise<DockerSandbox> {
    const name = containerName(this.#options.instance, request.id);
    let stream: AttachStream | undefined;
    let created = false;
    try {
      signal.throwIfAborted();
      const container = await this.#create(request, image);
      created = true;
      signal.throwIfAborted();
      stream = await attach(container);
      signal.throwIfAborted();
      await container.start();
      const guest = await AgentConnection.open(stream, { resync: false, signal });
      if (request.link !== undefined) await this.#join(container, request.link);
      signal.throwIfAborted();
      const record: DockerRecord = {
        containerId: container.id,
        class: request.limits.class,
        ...(request.link !== undefined && { address: request.link.address }),
        imageDefaults: image.defaults,
      };
      return await this.#hold(request.id, record, stream, guest);
    } catch (error) {
      const said = stream?.stderr ?? "";
      stream?.destroy();
      // A name that is taken belongs to a sandbox that is not ours to remove.
      if (!created && statusOf(error) === 409) {
        throw new DSecError("conflict", `sandbox ${request.id} is there already`, { cause: error });
      }
      // What stays has its labels and goes with a later sweep; why the start failed matters more.
      await removeContainer(this.#docker, name).catch(() => undefined);
      throw said === ""
        ? error
        : new DSecError("start_failed", `the agent did not start: ${said}`, { cause: error });
    }
  }

  /** Nothing but the agent runs in the container yet. @throws DSecError `backend_unavailable` */
  async #join(container: Docker.Container, link: PreparedLink): Promise<void> {
    const { State } = await container.inspect();
    const namespace = this.#joinable ? openContainerNetwork(container.id, State.Pid) : undefined;
    if (namespace === undefined) {
      const { State: now } = await container.inspect();
      if (!now.Running) throw new DSecError("start_failed", `the agent ended with exit code ${now.ExitCode}`);
      this.#joinable = false;
      throw new DSecError(
        "backend_unavailable",
        "the Docker daemon's containers cannot be seen from here, so they can have no network: try again without",
      );
    }
    try {
      await link.join(namespace);
    } finally {
      closeSync(namespace);
    }
  }

  async #create(request: StartRequest, image: DockerImage): Promise<Docker.Container> {
    const { instance, agentPath } = this.#options;
    const { here, protectsAgents } = await this.#examineMachine();
    const options = { instance, protectsAgents };
    if (this.#mountable && here) {
      try {
        return await this.#docker.createContainer(
          containerOptions(request, image.id, { ...options, agentMount: agentPath }),
        );
      } catch (error) {
        const unseen =
          statusOf(error) === 400 && error instanceof Error && error.message.includes("bind source");
        if (!unseen) throw error;
        // The same machine, but another mount namespace.
        this.#mountable = false;
      }
    }
    const container = await this.#docker.createContainer(
      containerOptions(request, image.id, { ...options, agentMount: undefined }),
    );
    await container.putArchive(await agentArchive(agentPath), { path: "/" });
    return container;
  }

  async #hold(
    id: string,
    record: DockerRecord,
    stream: AttachStream,
    guest: AgentConnection,
  ): Promise<DockerSandbox> {
    const { here } = await this.#examineMachine();
    const sandbox = new DockerSandbox({ record, docker: this.#docker, here, stream, guest });
    this.#held.set(id, sandbox);
    void guest.closed.then(() => {
      if (this.#held.get(id) === sandbox) this.#held.delete(id);
    });
    return sandbox;
  }

  /** Asked once; again after a failure. */
  async #examineMachine(): Promise<DockerMachine> {
    this.#machine ??= examineMachine(this.#docker);
    try {
      const machine = await this.#machine;
      if (!machine.here) this.#joinable = false;
      return machine;
    } catch (error) {
      this.#machine = undefined;
      throw error;
    }
  }
}

function assertAdoptable(id: string, info: ContainerInspectInfo, instance: string): void {
  const { Labels } = info.Config;
  if (Labels[labels.id] !== id || Labels[labels.instance] !== instance) {
    throw new DSecError("agent_lost", `the container ${info.Id} is not that of sandbox ${id}`);
  }
  if (info.State.Running) return;
  const { reason, message } = endFrom(info, "");
  throw new DSecError("agent_lost", message, reason === "oom" ? { details: { reason } } : {});
}
