import type { AgentConnection } from "../../../agent/connection.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { Usage } from "../../../protocol/sandbox.ts";
import type { BackendEnd, Limits, Running } from "../../backend.ts";
import type { Cgroup, CgroupUsage } from "../../linux/cgroup.ts";
import { isErrno } from "../../linux/libc.ts";
import { isAlive, type ProcessIdentity } from "../../linux/process.ts";
import type { RuncRecord } from "./record.ts";
import { removeSandbox } from "./removal.ts";
import { explainEnd } from "./sandbox-end.ts";
import type { SandboxPaths } from "./sandbox-paths.ts";

const mebibyte = 1024 * 1024;

/** A running sandbox of this engine. */
export class RuncSandbox implements Running {
  readonly record: RuncRecord;
  readonly guest: AgentConnection;
  readonly address?: string;
  readonly ended: Promise<BackendEnd>;
  readonly #paths: SandboxPaths;
  readonly #cgroup: Cgroup;
  #knownOomKills: number;
  #destruction: Promise<void> | undefined;
  #released = false;

  constructor(record: RuncRecord, guest: AgentConnection, paths: SandboxPaths, cgroup: Cgroup) {
    this.guest = guest;
    this.record = record;
    if (record.address !== null) this.address = record.address;
    this.#paths = paths;
    this.#cgroup = cgroup;
    this.#knownOomKills = cgroup.oomKills();
    const { promise, resolve } = Promise.withResolvers<BackendEnd>();
    this.ended = promise;
    void guest.closed.then(async () => {
      if (this.#destruction !== undefined || this.#released) return;
      resolve(await explainEnd(record, cgroup, this.#knownOomKills));
    });
  }

  async usage(): Promise<Usage> {
    const usage = this.#readUsage();
    // Whatever was killed, it was not the agent.
    if (isAlive(this.record)) this.#knownOomKills = usage.oomKills;
    return { ...usage, diskBytes: 0 };
  }

  async firstProcess(): Promise<ProcessIdentity | undefined> {
    return isAlive(this.record) ? this.record : undefined;
  }

  async update(limits: Partial<Limits>): Promise<void> {
    try {
      this.#cgroup.setLimits({ ...limits, class: this.record.class });
    } catch (error) {
      throw updateError(error, limits);
    }
  }

  #readUsage(): CgroupUsage {
    try {
      return this.#cgroup.usage();
    } catch (error) {
      if (isErrno(error, "ENOENT", "ENODEV")) throw gone(error);
      throw error;
    }
  }

  /** Lets go of the sandbox, which goes on: {@link ended} does not settle any more. */
  release(): void {
    this.#released = true;
    this.guest.close();
  }

  destroy(): Promise<void> {
    this.#destruction ??= this.#destroy();
    return this.#destruction;
  }

  async #destroy(): Promise<void> {
    this.guest.close();
    try {
      await removeSandbox(this.#paths, this.#cgroup, this.record);
    } catch (error) {
      // The next call tries again.
      this.#destruction = undefined;
      throw new DSecError("internal", "the sandbox could not be removed completely", { cause: error });
    }
  }
}

function updateError(cause: unknown, limits: Partial<Limits>): DSecError {
  if (limits.memoryBytes !== undefined && isErrno(cause, "EBUSY")) {
    const mib = Math.floor(limits.memoryBytes / mebibyte);
    return new DSecError("conflict", `the sandbox uses more memory than the new limit of ${mib} MiB`, {
      cause,
    });
  }
  if (isErrno(cause, "ENOENT", "ENODEV")) return gone(cause);
  if (isErrno(cause, "EINVAL", "ERANGE"))
    return new DSecError("invalid_argument", "the kernel refuses the new limits", { cause });
  return new DSecError("internal", "the new limits could not be set", { cause });
}

function gone(cause: unknown): DSecError {
  return new DSecError("sandbox_not_running", "the sandbox is gone", { cause });
}
