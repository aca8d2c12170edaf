import type { Duplex } from "node:stream";
import type { AuditEvent } from "../protocol/audit-event.ts";
import { DSecError } from "../protocol/errors.ts";
import type { ExecList, ExecRecord, LogLine } from "../protocol/exec.ts";
import type { NetworkDecision, NetworkProbeResult } from "../protocol/network-decision.ts";
import { parseProbe } from "../protocol/network-probe-text.ts";
import type { SandboxPolicy } from "../protocol/policy-in-force.ts";
import type { PolicyChange } from "../protocol/policy-push.ts";
import type { PortToken } from "../protocol/port.ts";
import type {
  Sandbox as SandboxInfo,
  SandboxEvent,
  SandboxState,
  SandboxUpdate,
} from "../protocol/sandbox.ts";
import type { SessionInfo, SessionList } from "../protocol/session.ts";
import { endedStates } from "../protocol/states.ts";
import type { HttpClient } from "../wire/client/http-client.ts";
import type { CollectOptions, ExecResult, ShellOptions } from "./exec-collect.ts";
import { type Command, execSpec, type SpawnOptions, refuseUnknown, spawnOptions } from "./exec-options.ts";
import type { AttachOptions, ExecProcess } from "./exec-process.ts";
import type { FetchInit } from "./fetch.ts";
import type { ForwardOptions, PortForward } from "./forward.ts";
import { SandboxFiles } from "./files.ts";
import type { Connection } from "./open-connection.ts";
import { type PolicyLike, wireChoice } from "./policies.ts";
import type { Ports } from "./ports.ts";

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface LogOptions extends CallOptions {
  /** Of which exec; default: the one the sandbox ends with, else the newest recorded. */
  readonly exec?: string;
  /** Go on until the command ends. */
  readonly follow?: boolean;
  /** Lines from the end. */
  readonly tail?: number;
  /** Milliseconds since the epoch. */
  readonly since?: number;
}

/** Milliseconds of one long poll. */
const pollMs = 60_000;

// what runs commands is loaded by the first command: `dsec ls` runs none

/**
 * One sandbox of a fleet. `await using` stops it at the end of the block.
 * Every call takes an AbortSignal and rejects with a {@link DSecError}.
 */
export class Sandbox implements AsyncDisposable {
  readonly #http: HttpClient;
  readonly #connection: Connection;
  readonly #ports: Ports;
  #info: SandboxInfo;
  #files: SandboxFiles | undefined;

  constructor(http: HttpClient, connection: Connection, ports: Ports, info: SandboxInfo) {
    this.#http = http;
    this.#connection = connection;
    this.#ports = ports;
    this.#info = info;
  }

  get id(): string {
    return this.#info.id;
  }

  /** Its files: read, write, list, copy. */
  get files(): SandboxFiles {
    return (this.#files ??= new SandboxFiles(this.#http, this.id));
  }

  get name(): string | undefined {
    return this.#info.name;
  }

  /** As of the last answer about it. */
  get state(): SandboxState {
    return this.#info.state;
  }

  /** The whole record, as of the last answer about it. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /**
   * Runs a command to its end. A command that fails is a result, not an error.
   * @throws DSecError `command_not_found`, `no_such_cwd`, `sandbox_not_running`, `output_too_large`, …; `connection_lost`
   *   with `ambiguous` when the outcome is unknown
   */
  async exec(command: Command, options: CollectOptions = {}): Promise<ExecResult> {
    const { collectExec } = await import("./exec-collect.ts");
    return collectExec(this.#connection, this.id, command, options);
  }

  /**
   * Runs shell text in a session: a live shell, in which directory, variables, functions and umask persist from call to call.
   * Calls of one session run one after the other. `session` of the result tells whether the shell was lost.
   * @throws DSecError as {@link exec}; `session_limit`, `conflict` when the session is another user's
   */
  async runShell(command: string, options: ShellOptions = {}): Promise<ExecResult> {
    const { collectShell } = await import("./exec-collect.ts");
    return collectShell(this.#connection, this.id, command, options);
  }

  /** Its sessions. */
  async sessions(options: CallOptions = {}): Promise<SessionInfo[]> {
    const params = { ref: this.id };
    return (await this.#http.json<SessionList>("listSessions", { params, ...options })).items;
  }

  /** Ends a session with every process it started. @throws DSecError `not_found` */
  async endSession(name: string, options: CallOptions = {}): Promise<void> {
    await this.#http.json("endSession", { params: { ref: this.id, name }, ...options });
  }

  /** Starts a process with streams; resolves when it runs. */
  async spawn(command: Command, options: SpawnOptions = {}): Promise<ExecProcess> {
    refuseUnknown(options, spawnOptions);
    const { spawnExec } = await import("./exec-process.ts");
    return spawnExec(this.#connection, this.id, execSpec(command, options), options.signal);
  }

  /**
   * Follows a process that is recorded (detached, or kept when its client went away), from now on or from what is recorded. Never slows it,
   * and leaving never ends it.
   * @throws DSecError `not_found`, `unsupported` when it is not recorded, `stdin_taken` when another client writes to it
   */
  async attach(exec: string, options: AttachOptions = {}): Promise<ExecProcess> {
    const { attachExec } = await import("./exec-process.ts");
    return attachExec(this.#connection, this.id, exec, options);
  }

  /**
   * Starts a process that runs without a connection; its output is recorded. With `stdin` or `tty` it waits for who attaches to it.
   * @returns its exec id, for {@link logs} and {@link attach}
   */
  async execDetached(command: Command, options: SpawnOptions = {}): Promise<string> {
    refuseUnknown(options, spawnOptions);
    const { detachExec } = await import("./exec-detached.ts");
    const spec = { record: true, ...execSpec(command, options) };
    return detachExec(this.#connection, this.id, spec, options.signal);
  }

  /**
   * A TCP connection to one of its ports, also where a service listens on its loopback only. Each direction ends on its own; a connection that breaks
   * ends in an error.
   * @throws DSecError `port_refused` when nobody listens, `port_timeout`, `sandbox_not_running`, `connection_limit`
   */
  async connect(port: number, options: CallOptions = {}): Promise<Duplex> {
    return this.#ports.connect(this.id, port, options.signal);
  }

  /**
   * One HTTP request to one of its ports, with the web's types; bodies stream both ways, and connections are kept for a while.
   * @param path begins with `/`; with query
   * @throws DSecError as {@link connect}; `protocol_error` when what answers is no HTTP, `connection_lost` (ambiguous unless the request changes nothing)
   */
  async fetch(port: number, path: string, init: FetchInit = {}): Promise<Response> {
    return this.#ports.fetch(this.id, port, path, init);
  }

  /** Listens here; each connection leads to a port of the sandbox. `await using` ends it. @throws DSecError `address_in_use` */
  async forward(options: ForwardOptions): Promise<PortForward> {
    return this.#ports.forward(this.id, options);
  }

  /** A credential for one port over the API server's HTTP route, for those who must not have the fleet's. @param options.ttl seconds, default 3600 */
  async createPortToken(
    port: number,
    options: CallOptions & { readonly ttl?: number } = {},
  ): Promise<PortToken> {
    const { ttl, signal } = options;
    const body = { port, ...(ttl === undefined ? {} : { ttl }) };
    return this.#http.json<PortToken>("createPortToken", {
      params: { ref: this.id },
      body,
      signal,
      idempotent: true,
    });
  }

  /** Ends it; resolves when nothing of it runs any more. Legal in every state. */
  async stop(options: CallOptions = {}): Promise<SandboxInfo> {
    // a second stop answers the same: stopping is idempotent
    return this.#update(
      await this.#http.json<SandboxInfo>("stopSandbox", {
        params: { ref: this.id },
        body: {},
        idempotent: true,
        ...options,
      }),
    );
  }

  /** Ends it if need be and forgets its record and logs. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#http.json("removeSandbox", { params: { ref: this.id }, ...options });
  }

  /** Renews the idle deadline. @param options.ttlRunningStop new idle seconds; 0 means never */
  async touch(options: CallOptions & { readonly ttlRunningStop?: number } = {}): Promise<SandboxInfo> {
    const { ttlRunningStop, signal } = options;
    const body = ttlRunningStop === undefined ? {} : { ttlRunningStop };
    const params = { ref: this.id };
    return this.#update(
      await this.#http.json<SandboxInfo>("touchSandbox", { params, body, signal, idempotent: true }),
    );
  }

  /** Changes limits or labels while it runs. */
  async update(changes: SandboxUpdate, options: CallOptions = {}): Promise<SandboxInfo> {
    const params = { ref: this.id };
    return this.#update(
      await this.#http.json<SandboxInfo>("updateSandbox", {
        params,
        body: changes,
        idempotent: true,
        ...options,
      }),
    );
  }

  /** Resolves when it has ended, or with its record as it is after `timeoutMs`. */
  async wait(options: CallOptions & { readonly timeoutMs?: number } = {}): Promise<SandboxInfo> {
    const { signal, timeoutMs = Number.POSITIVE_INFINITY } = options;
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const left = Math.max(0, Math.ceil(deadline - performance.now()));
      const query = { timeoutMs: Math.min(left, pollMs) };
      const info = await this.#http.json<SandboxInfo>("waitSandbox", {
        params: { ref: this.id },
        query,
        signal,
      });
      this.#update(info);
      if (endedStates.includes(info.state) || performance.now() >= deadline) return info;
    }
  }

  /** Asks for its record again, with its usage. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#update(
      await this.#http.json<SandboxInfo>("getSandbox", { params: { ref: this.id }, ...options }),
    );
  }

  /** Recorded output. Ends after the line of type `end`; a connection that ends before it is an error. */
  async *logs(options: LogOptions = {}): AsyncGenerator<LogLine, void, undefined> {
    const { signal, ...query } = options;
    const lines = await this.#http.lines<LogLine>("logs", { params: { ref: this.id }, query, signal });
    for await (const line of lines) {
      yield line;
      if (line.type === "end") return;
    }
    throw new DSecError("connection_lost", "the log ended before its end");
  }

  /** What happened to it. */
  async events(options: CallOptions = {}): Promise<SandboxEvent[]> {
    const answer = await this.#http.json<{ items: SandboxEvent[] }>("listEvents", {
      params: { ref: this.id },
      ...options,
    });
    return answer.items;
  }

  /** The network policy in force. */
  async networkPolicy(options: CallOptions = {}): Promise<SandboxPolicy> {
    return this.#http.json<SandboxPolicy>("getSandboxPolicy", { params: { ref: this.id }, ...options });
  }

  /**
   * Replaces its network policy, as one step: connections that no longer pass are cut when this resolves.
   * @param options.expectedRevision of the policy it replaces
   * @throws DSecError `unknown_registry`, `not_found` for a named policy, `conflict`, `sandbox_not_running`
   */
  async setNetworkPolicy(
    policy: PolicyLike,
    options: CallOptions & { readonly expectedRevision?: number } = {},
  ): Promise<PolicyChange> {
    const { expectedRevision, signal } = options;
    const body = {
      policy: await wireChoice(policy),
      ...(expectedRevision === undefined ? {} : { expectedRevision }),
    };
    // with a revision the second time would find what the first has changed
    const idempotent = expectedRevision === undefined;
    const params = { ref: this.id };
    return this.#http.json<PolicyChange>("setSandboxPolicy", { params, body, signal, idempotent });
  }

  /** Whether it may connect to `example.com:443`, `192.0.2.1:53/udp`, `[2001:db8::1]:443`, and by which rule. Connects to nothing. */
  async testNetwork(target: string, options: CallOptions = {}): Promise<NetworkProbeResult> {
    const body = parseProbe(target);
    const params = { ref: this.id };
    return this.#http.json<NetworkProbeResult>("testNetwork", { params, body, idempotent: true, ...options });
  }

  /** What was decided about its connections and queries, oldest first. @param options.since milliseconds since the epoch */
  async *networkLog(
    options: CallOptions & { readonly since?: number; readonly follow?: boolean } = {},
  ): AsyncGenerator<NetworkDecision, void, undefined> {
    const { signal, ...query } = options;
    const params = { ref: this.id };
    yield* await this.#http.lines<NetworkDecision>("networkLog", { params, query, signal });
  }

  /**
   * What its processes did, oldest first: programs executed, connections tried, ends. Its text is what they say, and untrusted.
   *
   * @param options.since milliseconds since the epoch
   * @throws DSecError `audit_unavailable` where its node does not audit
   */
  async *audit(
    options: CallOptions & { readonly since?: number; readonly follow?: boolean } = {},
  ): AsyncGenerator<AuditEvent, void, undefined> {
    const { signal, ...query } = options;
    yield* await this.#http.lines<AuditEvent>("audit", { params: { ref: this.id }, query, signal });
  }

  /** Its commands. */
  async execs(options: CallOptions = {}): Promise<ExecRecord[]> {
    return (await this.#http.json<ExecList>("listExecs", { params: { ref: this.id }, ...options })).items;
  }

  /** Stops it; one that is already gone is fine. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.stop();
    } catch (error) {
      if (!(error instanceof DSecError && error.code === "not_found")) throw error;
    }
  }

  #update(info: SandboxInfo): SandboxInfo {
    this.#info = info;
    return info;
  }
}
