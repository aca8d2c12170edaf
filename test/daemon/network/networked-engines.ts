import type { DaemonOptionsInput } from "../../../src/daemon/options.ts";
import type { SandboxSpecInput } from "../../../src/protocol/sandbox.ts";
import { busybox } from "../container-fixture.ts";

export interface NetworkedEngine {
  readonly engine: string;
  /** Of a sandbox, whatever its rules. */
  readonly spec: SandboxSpecInput;
  /** Where it has its images from: layers of the node, or the Docker daemon. */
  readonly images: "layers" | "docker";
  /** Of a daemon that has the engine. */
  readonly options: () => Partial<DaemonOptionsInput>;
}

/** Whoever gives sandboxes a network stands here, and is tested by what is said of all. */
export const networkedEngines: readonly NetworkedEngine[] = [
  { engine: "runc", spec: { ...busybox, engine: "runc" }, images: "layers", options: () => ({}) },
  {
    engine: "docker",
    spec: { ...busybox, engine: "docker", image: "dsec-test-busybox:latest" },
    images: "docker",
    options: () => ({
      backends: ["runc", "docker"],
      dockerSocket: process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "",
    }),
  },
];
