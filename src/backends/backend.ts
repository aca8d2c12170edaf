/**
 * The contract of every backend. A backend knows nothing of the daemon: it is handed a prepared root, network and limits, starts
 * what runs in them, and gives back a {@link Running} that the daemon drives. Callers ask {@link BackendCapabilities},
 * never for a class.
 */
import type { Guest } from "../agent/guest.ts";
import type { BackendReport } from "../protocol/node.ts";
import type {
  BackendKind,
  EndReason,
  Engine,
  PullPolicy,
  ResourceClass,
  Simulation,
  Usage,
} from "../protocol/sandbox.ts";
import type { ProcessIdentity } from "./linux/process.ts";

/** What JSON can carry; journaled by the daemon, opaque to it. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface BackendCapabilities {
  /** `prepared`: the daemon composes a root directory; `image`: the backend has images of its own; `none`. */
  readonly root: "prepared" | "image" | "none";
  /** Whether a workspace and toolkits can lie over the image. Without a root (`none`) they are taken and, like the image, not read. */
  readonly composes: boolean;
  /**
   * `prepared`: the daemon hands over a network namespace; `joined`: the backend makes one with nothing but loopback, into which the daemon puts
   * a link ({@link PreparedLink}); `own`: the backend makes one that stays so; `none`.
   */
  readonly network: "prepared" | "joined" | "own" | "none";
  /** Whether the disk limit is enforced (by the prepared root or by the backend). */
  readonly diskLimit: boolean;
  /** Fields of {@link Limits} that {@link Running.update} can change. */
  readonly updates: ReadonlySet<keyof Limits>;
  /** Whether a sandbox outlives the daemon and can be adopted. */
  readonly adopts: boolean;
  /** Whether real programs run inside (false: simulated). */
  readonly realProcesses: boolean;
}

export interface Limits {
  /** Bytes. */
  readonly memoryBytes: number;
  /** Cores asked for: the CPU weight. */
  readonly cpus: number;
  /** Hard ceiling in cores. */
  readonly cpuLimit: number | null;
  readonly pids: number;
  /** Bytes. */
  readonly diskBytes: number;
  readonly class: ResourceClass;
}

export type PreparedRoot =
  /** A mounted, writable directory. The backend may rely on it only until {@link Backend.start} returns: the daemon then unmounts it from its own view. */
  | { readonly type: "directory"; readonly path: string }
  /** `pull`: as docker's; `missing` without it. */
  | { readonly type: "image"; readonly reference: string; readonly pull?: PullPolicy }
  | { readonly type: "none" };

export interface PreparedNetwork {
  /** Path by which the runtime can enter the namespace, e.g. /proc/<pid>/fd/<n>. */
  readonly netnsPath: string;
  readonly address: string;
  /** Address of the only name server that the sandbox reaches. */
  readonly nameServer: string;
}

/** A link that is not there yet. What it may carry is in force. */
export interface PreparedLink extends Pick<PreparedNetwork, "address" | "nameServer"> {
  /**
   * Puts the sandbox's end into a network namespace and sets it up. To be called before anything untrusted runs there.
   *
   * @param namespace descriptor, which stays the caller's
   * @throws DSecError `backend_unavailable`; no link is left
   */
  join(namespace: number): Promise<void>;
}

export interface StartRequest {
  readonly id: string;
  readonly hostname: string;
  readonly env: Readonly<Record<string, string>>;
  readonly root: PreparedRoot;
  /** For backends whose network is `prepared`. */
  readonly network?: PreparedNetwork;
  /** For backends whose network is `joined`. */
  readonly link?: PreparedLink;
  readonly limits: Limits;
  readonly simulation?: Simulation;
}

/** Why a sandbox ended by itself, as far as the backend can tell. */
export interface BackendEnd {
  readonly reason: Extract<EndReason, "oom" | "agent_lost" | "disk_full">;
  readonly message: string;
}

/** A started sandbox. */
export interface Running {
  /** What {@link Backend.adopt} needs after a restart of the daemon. */
  readonly record: Json;
  readonly guest: Guest;
  /** Defaults for execs that the image itself carries (docker), e.g. its environment and working directory. */
  readonly imageDefaults?: {
    readonly env: Readonly<Record<string, string>>;
    readonly workdir?: string;
    readonly user?: string;
  };
  readonly address?: string;
  /** Resolves, never rejects, when the sandbox is gone without {@link destroy} having been called. */
  readonly ended: Promise<BackendEnd>;
  /** `diskBytes` is 0 where the root is prepared: the daemon knows it. */
  usage(): Promise<Usage>;
  /**
   * The first process in the sandbox's process namespace; absent or undefined where there is none on this machine, or it has
   * ended.
   */
  firstProcess?(): Promise<ProcessIdentity | undefined>;
  /** Only fields named by {@link BackendCapabilities.updates}. All or nothing. */
  update(limits: Partial<Limits>): Promise<void>;
  /** Kills every process by cgroup, confirms that none is left, and removes all that start made. Idempotent. */
  destroy(): Promise<void>;
}

export interface Backend {
  readonly kind: BackendKind;
  readonly engine?: Engine;
  readonly capabilities: BackendCapabilities;
  /** Whether it works here; never throws. */
  probe(signal: AbortSignal): Promise<BackendReport>;
  /**
   * Resolves when the guest answers. On failure or abort nothing is left behind.
   * @throws DSecError `start_failed`, `start_timeout`, `backend_unavailable`, `image_not_found`, `disk_full`, `cancelled`
   */
  start(request: StartRequest, signal: AbortSignal): Promise<Running>;
  /**
   * Takes up a sandbox that an earlier daemon started, and connects to its guest.
   * @throws DSecError `agent_lost` with the reason; details.reason is `oom` where the cgroup says so. What was left is then removed by {@link sweep}.
   */
  adopt(id: string, record: Json, signal: AbortSignal): Promise<Running>;
  /** Removes everything this backend made for sandboxes that are not in `keep`; returns the ids it removed. Runs in the background, bounded. */
  sweep(keep: ReadonlySet<string>, signal: AbortSignal): Promise<string[]>;
  /** Docker engine: whether the image is there, and its id. */
  findImage?(reference: string, signal: AbortSignal): Promise<{ readonly digest: string } | undefined>;
  /** Releases what the daemon's process holds; sandboxes go on. */
  close(): Promise<void>;
}
