import { readFile } from "node:fs/promises";
import { hostname, release } from "node:os";
import type Docker from "dockerode";
import { Capability } from "../../linux/capability.ts";

/** What is to be known of the machine that a Docker daemon runs on. */
export interface DockerMachine {
  /** Whether it is this machine, so that its processes can be seen and files be mounted from here. */
  readonly here: boolean;
  /** Whether a container may be made less likely to be killed for memory than others. */
  readonly protectsAgents: boolean;
}

/** @throws an error of the Docker client */
export async function examineMachine(docker: Docker): Promise<DockerMachine> {
  const info = (await docker.info()) as {
    Name?: string;
    KernelVersion?: string;
    SecurityOptions?: string[] | null;
  };
  const rootless = info.SecurityOptions?.includes("name=rootless") ?? false;
  const here = info.Name === hostname() && info.KernelVersion === release();
  return {
    here,
    protectsAgents: !rootless && (!here || (await isPossible(Capability.sysResource))),
  };
}

/** Whether a capability can be had on this machine at all; a daemon that runs beside us then has it, too. */
async function isPossible(bit: number): Promise<boolean> {
  const status = await readFile("/proc/self/status", "utf8");
  const bounding = /^CapBnd:\s*([0-9a-f]+)$/m.exec(status)?.[1];
  return bounding !== undefined && ((BigInt(`0x${bounding}`) >> BigInt(bit)) & 1n) === 1n;
}
