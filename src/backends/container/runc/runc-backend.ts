import { existsSync, rmdirSync } from "node:fs";
import { DSecError } from "../../../protocol/errors.ts";
import type { BackendReport } from "../../../protocol/node.ts";
import type { Backend, BackendCapabilities, Json, Running, StartRequest } from "../../backend.ts";
import type { Cgroup, CgroupHierarchy } from "../../linux/cgroup.ts";
import { detectCgroups } from "../../linux/cgroup-hierarchy.ts";
import { isErrno } from "../../linux/libc.ts";
import { isAlive } from "../../linux/process.ts";
import { openAgent } from "./agent-link.ts";
import { type Host, inspectHost } from "./host.ts";
import { claim, launch, startError } from "./launch.ts";
import { probeHost } from "./probe.ts";
import { RuncRecord } from "./record.ts";
import { removeSandbox } from "./removal.ts";
import { endRuntimes } from "./running-runtimes.ts";
import { preferredRuntimes, type RuntimeName } from "./runtime.ts";
import { RuncSandbox } from "./runc-sandbox.ts";
import { explainDeath } from "./sandbox-end.ts";
import { sandboxesDirectory, sandboxPaths } from "./sandbox-paths.ts";
import { forEachBounded, namesIn } from "./sweep.ts";

export interface RuncBackendOptions {
  /** Names the control groups: `/<instance>/<sandbox id>`. */
  readonly instance: string;
  /** For sockets, bundles and the runtime's state. */
  readonly runDir: string;
  /** Without it, the fastest that is installed. */
  readonly runtime?: RuntimeName;
}

/** Containers by an OCI runtime, without any process of ours beside the agent in each. */
export class RuncBackend implements Backend {
  readonly kind = "container";
  readonly engine = "runc";
  readonly capabilities: BackendCapabilities = {
    root: "prepared",
    composes: true,
    network: "prepared",
    diskLimit: true,
    updates: new Set(["memoryBytes", "cpus", "cpuLimit", "pids"]),
    adopts: true,
    realProcesses: true,
  };
  readonly #instance: string;
  readonly #sandboxes: string;
  readonly #starting = new Set<string>();
  readonly #held = new Map<string, RuncSandbox>();
  readonly #runtimes: readonly RuntimeName[];
  #host: Host | undefined;
  /** Undefined until something here may have needed a group. */
  #cgroups: CgroupHierarchy | undefined;

  constructor({ instance, runDir, runtime }: RuncBackendOptions) {
    this.#runtimes = runtime === undefined ? preferredRuntimes : [runtime];
    this.#instance = instance;
    this.#sandboxes = sandboxesDirectory(runDir);
  }

  probe(signal: AbortSignal): Promise<BackendReport> {
    return probeHost(this.#runtimes, signal);
  }

  async start(request: StartRequest, signal: AbortSignal): Promise<Running> {
    const host = this.#requireHost();
    const paths = sandboxPaths(this.#sandboxes, request.id);
    const cgroup = this.#cgroup(request.id);
    if (signal.aborted) throw startError(undefined, signal);
    claim(paths, request.id);
    this.#starting.add(request.id);
    try {
      const { init, guest } = await launch(host, paths, cgroup, request, signal);
      const record: RuncRecord = {
        ...init,
        class: request.limits.class,
        address: request.network?.address ?? null,
      };
      return this.#hold(request.id, new RuncSandbox(record, guest, paths, cgroup));
    } catch (error) {
      const failure = startError(error, signal);
      // crun works on in a session of its own, and what the launcher has not put there is in no control group yet.
      if (signal.aborted && host.runtime.launcher === undefined)
        await endRuntimes(this.#sandboxes, (id) => id === request.id);
      await removeSandbox(paths, cgroup).catch((cause: unknown) => {
        throw new DSecError(failure.code, failure.message, { cause: new AggregateError([error, cause]) });
      });
      throw failure;
    } finally {
      this.#starting.delete(request.id);
    }
  }

  async adopt(id: string, json: Json, signal: AbortSignal): Promise<Running> {
    const record = RuncRecord.safeParse(json);
    if (!record.success)
      throw lost("the journal's record of the sandbox cannot be read", "agent_lost", record.error);
    const paths = sandboxPaths(this.#sandboxes, id);
    const cgroup = this.#cgroup(id);
    if (!isAlive(record.data)) throw dead(cgroup);
    try {
      const guest = await openAgent(paths.socket, signal);
      return this.#hold(id, new RuncSandbox(record.data, guest, paths, cgroup));
    } catch (error) {
      signal.throwIfAborted();
      if (!isAlive(record.data)) throw dead(cgroup, error);
      throw lost("the sandbox's agent runs but cannot be reached", "agent_lost", error);
    }
  }

  async sweep(keep: ReadonlySet<string>, signal: AbortSignal): Promise<string[]> {
    // What a daemon that was killed has left at work.
    await endRuntimes(this.#sandboxes, (id) => !this.#isOurs(id), signal);
    const found = new Set([
      ...namesIn(this.#sandboxes).filter((id) => existsSync(sandboxPaths(this.#sandboxes, id).bundle)),
      ...this.#requireCgroups().children(`/${this.#instance}`),
    ]);
    const leftovers = [...found].filter((id) => !keep.has(id));
    const removed: string[] = [];
    const remove = async (id: string) => {
      if (this.#isOurs(id)) return;
      await removeSandbox(sandboxPaths(this.#sandboxes, id), this.#cgroup(id));
      removed.push(id);
    };
    await forEachBounded(leftovers, remove, signal);
    return removed;
  }

  async close(): Promise<void> {
    for (const sandbox of this.#held.values()) sandbox.release();
    this.#removeEmptyParent();
  }

  #hold(id: string, sandbox: RuncSandbox): RuncSandbox {
    this.#held.set(id, sandbox);
    void sandbox.guest.closed.then(() => {
      if (this.#held.get(id) === sandbox) this.#held.delete(id);
    });
    return sandbox;
  }

  /** Whether it is this process's business and not a leftover. */
  #isOurs(id: string): boolean {
    return this.#starting.has(id) || this.#held.has(id);
  }

  #requireHost(): Host {
    this.#host ??= inspectHost(this.#runtimes);
    return this.#host;
  }

  #requireCgroups(): CgroupHierarchy {
    this.#cgroups ??= this.#host?.cgroups ?? detectCgroups();
    return this.#cgroups;
  }

  #cgroup(id: string): Cgroup {
    return this.#requireCgroups().cgroup(`/${this.#instance}/${id}`);
  }

  /** The control group above all sandboxes is made with the first of them; it goes with the last. */
  #removeEmptyParent(): void {
    for (const directory of this.#cgroups?.cgroup(`/${this.#instance}`).directories() ?? []) {
      try {
        rmdirSync(directory);
      } catch (error) {
        if (!isErrno(error, "EBUSY", "ENOTEMPTY", "ENOENT")) throw error;
      }
    }
  }
}

function lost(message: string, reason: string, cause?: unknown): DSecError {
  return new DSecError("agent_lost", message, { details: { reason }, ...(cause !== undefined && { cause }) });
}

function dead(cgroup: Cgroup, cause?: unknown): DSecError {
  const end = explainDeath(cgroup, 0);
  return lost(end.message, end.reason, cause);
}
