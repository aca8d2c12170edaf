import type { Backend, BackendCapabilities, Limits, StartRequest } from "../../src/backends/backend.ts";

/** What a test wants of a sandbox; the harness adds what its backend needs to start it. */
export interface SandboxWish {
  readonly id: string;
  readonly hostname: string;
  readonly limits: Limits;
}

/** Texts by path. */
export type LayerTree = Readonly<Record<string, string>>;

/** A request with what stands behind it, e.g. a composed root. */
export interface PreparedStart {
  readonly request: StartRequest;
  /** To be called once the backend has started. */
  started(): Promise<void>;
  /** Gives back what was prepared, after the sandbox is gone. Idempotent. */
  release(): Promise<void>;
}

/** One backend on this machine, under a name of its own, so that suites run beside each other and beside a real fleet. */
export interface Harness {
  /** The backend now; another object after {@link restart}. */
  readonly backend: Backend;
  prepare(wish: SandboxWish): Promise<PreparedStart>;
  /** Where the backend composes: over its image a workspace and then toolkits, each given as texts by path. */
  prepareComposed?(wish: SandboxWish, above: readonly LayerTree[]): Promise<PreparedStart>;
  /** A request that cannot start, and the code it must be refused with. */
  prepareImpossible(wish: SandboxWish): Promise<PreparedStart & { readonly code: string }>;
  /** The daemon goes and a new one comes: the backend is closed and made anew. Sandboxes go on. */
  restart(): Promise<void>;
  /** What this machine still has of this harness's sandboxes, one line each: containers, cgroups, mounts, directories. */
  leftovers(): Promise<string[]>;
  dispose(): Promise<void>;
}

export interface ConformanceSubject {
  readonly name: string;
  /** Selects the sentences that apply. */
  readonly capabilities: BackendCapabilities;
  open(): Promise<Harness>;
}
