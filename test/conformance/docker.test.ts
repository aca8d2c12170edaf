import { randomBytes } from "node:crypto";
import Docker from "dockerode";
import { agentBinaryPath } from "../../src/agent/agent-binary.ts";
import { DockerBackend } from "../../src/backends/container/docker/docker-backend.ts";
import type { Harness, PreparedStart, SandboxWish } from "./harness.ts";
import { cgroupsNamed } from "./leftover-cgroups.ts";
import { conformance } from "./suite.ts";

const IMAGE = "dsec-test-busybox:latest";

class DockerHarness implements Harness {
  backend: DockerBackend;
  readonly #instance = `dsec-test-${randomBytes(4).toString("hex")}`;
  readonly #docker: Docker;
  /** Ids of containers that were seen: the names of their cgroups. */
  readonly #seen = new Set<string>();

  constructor() {
    const socketPath = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";
    this.#docker = new Docker({ socketPath, host: "" });
    this.backend = this.#make();
  }

  async prepare(wish: SandboxWish): Promise<PreparedStart> {
    return prepared(wish, IMAGE);
  }

  async prepareImpossible(wish: SandboxWish): Promise<PreparedStart & { code: string }> {
    return { ...prepared(wish, "dsec-test-no-such-image:latest"), code: "image_not_found" };
  }

  async restart(): Promise<void> {
    for (const id of await this.#containers()) this.#seen.add(id);
    await this.backend.close();
    this.backend = this.#make();
  }

  async leftovers(): Promise<string[]> {
    const containers = await this.#containers();
    return [...containers.map((id) => `container ${id}`), ...cgroupsNamed(this.#seen)];
  }

  async dispose(): Promise<void> {
    await this.backend.sweep(new Set(), new AbortController().signal);
    await this.backend.close();
  }

  #make(): DockerBackend {
    return new DockerBackend({
      instance: this.#instance,
      agentPath: agentBinaryPath(),
      socketPath: process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "",
    });
  }

  async #containers(): Promise<string[]> {
    const filters = { label: [`dsec.instance=${this.#instance}`] };
    return (await this.#docker.listContainers({ all: true, filters })).map(({ Id }) => Id);
  }
}

function prepared({ id, hostname, limits }: SandboxWish, reference: string): PreparedStart {
  return {
    request: { id, hostname, env: {}, root: { type: "image", reference }, limits },
    started: async () => {},
    release: async () => {},
  };
}

conformance({
  name: "container by docker",
  capabilities: new DockerBackend({ instance: "dsec-test", agentPath: "", socketPath: "" }).capabilities,
  open: async () => new DockerHarness(),
});
