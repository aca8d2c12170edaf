import { randomBytes } from "node:crypto";
import type { Guest, GuestExec, GuestExecSpec, GuestExit } from "../../src/agent/guest.ts";
import type { Limits, Running } from "../../src/backends/backend.ts";
import { sandboxIdFrom } from "../../src/protocol/names.ts";
import type { Harness, LayerTree, PreparedStart, SandboxWish } from "./harness.ts";

export const MIB = 1_048_576;

export const never: AbortSignal = new AbortController().signal;

const usualLimits: Limits = {
  memoryBytes: 128 * MIB,
  cpus: 1,
  cpuLimit: null,
  pids: 128,
  diskBytes: 64 * MIB,
  class: "latency-sensitive",
};

export interface StartedSandbox {
  readonly id: string;
  readonly running: Running;
  readonly guest: Guest;
}

/** Starts sandboxes for tests and ends those that a test leaves. */
export class Fixture {
  readonly harness: Harness;
  readonly #started = new Map<string, { readonly prepared: PreparedStart; running?: Running }>();

  constructor(harness: Harness) {
    this.harness = harness;
  }

  wish(limits: Partial<Limits> = {}): SandboxWish {
    const id = sandboxIdFrom("conformance", randomBytes(10));
    return { id, hostname: `host-${id.slice(-10)}`, limits: { ...usualLimits, ...limits } };
  }

  async start(limits: Partial<Limits> = {}): Promise<StartedSandbox> {
    return this.startWish(this.wish(limits), never);
  }

  /** What was prepared is released when the start fails. */
  async startWish(wish: SandboxWish, signal: AbortSignal): Promise<StartedSandbox> {
    return this.#start(wish, await this.harness.prepare(wish), signal);
  }

  /** With a workspace and toolkits over the image. */
  async startComposed(above: readonly LayerTree[]): Promise<StartedSandbox> {
    const { harness } = this;
    const wish = this.wish();
    if (harness.prepareComposed === undefined) throw new Error("the harness composes nothing");
    return this.#start(wish, await harness.prepareComposed(wish, above), never);
  }

  async #start(wish: SandboxWish, prepared: PreparedStart, signal: AbortSignal): Promise<StartedSandbox> {
    try {
      const running = await this.harness.backend.start(prepared.request, signal);
      this.#started.set(wish.id, { prepared, running });
      await prepared.started();
      return { id: wish.id, running, guest: running.guest };
    } catch (error) {
      if (!this.#started.has(wish.id)) await prepared.release();
      throw error;
    }
  }

  /** The sandbox as a daemon that was started anew finds it in its journal. */
  async adopt(sandbox: StartedSandbox): Promise<StartedSandbox> {
    const record: unknown = JSON.parse(JSON.stringify(sandbox.running.record));
    const running = await this.harness.backend.adopt(sandbox.id, record as Running["record"], never);
    const known = this.#started.get(sandbox.id);
    if (known !== undefined) known.running = running;
    return { id: sandbox.id, running, guest: running.guest };
  }

  async destroy(sandbox: StartedSandbox): Promise<void> {
    await sandbox.running.destroy();
    await this.forget(sandbox);
  }

  /** The sandbox is gone already. */
  async forget(sandbox: StartedSandbox): Promise<void> {
    await this.#started.get(sandbox.id)?.prepared.release();
    this.#started.delete(sandbox.id);
  }

  /** Ends every sandbox that is left but those in `keep`. */
  async clear(keep: ReadonlySet<string> = new Set()): Promise<void> {
    for (const [id, { running, prepared }] of this.#started) {
      if (keep.has(id)) continue;
      await running?.destroy();
      await prepared.release();
      this.#started.delete(id);
    }
  }
}

export interface Result {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** stdout as text. */
  readonly text: string;
  readonly exit: GuestExit;
}

export type ExecOptions = Partial<Omit<GuestExecSpec, "argv">>;

/** Collects what an exec writes. Checks on the way that offsets have no gap. */
export class Output {
  readonly #chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  readonly offsets = { stdout: 0, stderr: 0 };

  readonly sink = (stream: "stdout" | "stderr", offset: number, chunk: Buffer): void => {
    if (offset !== this.offsets[stream]) {
      throw new Error(`${stream} goes on at ${offset}, not at ${this.offsets[stream]}`);
    }
    this.offsets[stream] += chunk.length;
    this.#chunks[stream].push(Buffer.from(chunk));
  };

  get stdout(): Buffer {
    return Buffer.concat(this.#chunks.stdout);
  }

  get stderr(): Buffer {
    return Buffer.concat(this.#chunks.stderr);
  }
}

export function execSpec(argv: readonly string[], options: ExecOptions = {}): GuestExecSpec {
  return { env: {}, stdin: false, ...options, argv };
}

/** Runs to its end and collects everything. */
export async function run(guest: Guest, argv: readonly string[], options: ExecOptions = {}): Promise<Result> {
  const output = new Output();
  const exec = await guest.exec(execSpec(argv, options), output.sink);
  return finish(exec, output);
}

export async function finish(exec: GuestExec, output: Output): Promise<Result> {
  const exit = await exec.exit;
  exec.release();
  return { stdout: output.stdout, stderr: output.stderr, text: output.stdout.toString(), exit };
}

export function sh(guest: Guest, script: string, options: ExecOptions = {}): Promise<Result> {
  return run(guest, ["sh", "-c", script], options);
}

/** Starts an exec and waits until it has said `word` on stdout. */
export async function startUntil(
  guest: Guest,
  argv: readonly string[],
  word: string,
  options: ExecOptions = {},
): Promise<{ readonly exec: GuestExec; readonly output: Output }> {
  const output = new Output();
  const said = Promise.withResolvers<void>();
  const exec = await guest.exec(execSpec(argv, options), (stream, offset, chunk) => {
    output.sink(stream, offset, chunk);
    if (output.stdout.includes(word)) said.resolve();
  });
  const ended = exec.exit.then(() => Promise.reject(new Error(`the exec ended before it said ${word}`)));
  await Promise.race([said.promise, ended]);
  ended.catch(() => undefined);
  return { exec, output };
}
