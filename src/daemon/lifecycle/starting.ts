import type { Logger } from "pino";
import type { Backend, Running, StartRequest } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import { ExecSpec } from "../../protocol/exec.ts";
import { nodeOfSandboxId } from "../../protocol/names.ts";
import { fromProblem, toProblem } from "../../protocol/problem-codec.ts";
import type { Placement } from "../../protocol/sandbox.ts";
import type { Audit } from "../audit/audit.ts";
import type { Clock } from "../clock.ts";
import { defaultDirectory } from "../exec/exec-defaults.ts";
import type { Execs } from "../exec/execs.ts";
import type { Ending } from "./ending.ts";
import { chooseImage, serviceOf, type ImageChoice } from "./image-choice.ts";
import type { ImageSources } from "./image-search.ts";
import type { LeakSweep } from "./leak-sweep.ts";
import { limitsOf } from "./limits.ts";
import type { Metrics } from "../metrics.ts";
import type { PolicyBook } from "../network/policy/policy-book.ts";
import type { PolicyChanges } from "../network/policy/policy-changes.ts";
import type { PolicyEnforcement } from "../network/policy/policy-enforcement.ts";
import type { SandboxTrust } from "../network/authorities/sandbox-trust.ts";
import { newRecord, type SandboxRecord } from "./sandbox-record.ts";
import type { SandboxEntry } from "./sandbox-entry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import type { Semaphore } from "../semaphore.ts";
import { within } from "../within.ts";

export interface StartingParts extends ImageSources {
  readonly node: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly sandboxes: Sandboxes;
  readonly ending: Pick<Ending, "begin">;
  readonly execs: Pick<Execs, "start">;
  readonly sweep: Pick<LeakSweep, "leaked">;
  readonly policyBook: Pick<PolicyBook, "source">;
  readonly policyChanges: Pick<PolicyChanges, "first">;
  readonly enforcement: Pick<PolicyEnforcement, "check" | "begin" | "end" | "of">;
  /** Undefined where sandboxes trust what their image does. */
  readonly trust: SandboxTrust | undefined;
  /** Undefined where what processes do is of no interest. */
  readonly audit: Audit | undefined;
  /** @throws DSecError the refusal */
  readonly admit: (entry: SandboxEntry) => Promise<void>;
  /** Starts of real sandboxes at a time. */
  readonly slots: Semaphore;
  /** Milliseconds from the beginning of a start to its failure. */
  readonly startTimeoutMs: number;
}

/** Milliseconds a backend gets to give up a start that timed out, before it is left to itself. */
const abandonMs = 15_000;

/** Creation of sandboxes. Until `starting` a refusal leaves no record; after it a failure is one that can be read. */
export class Starting {
  readonly #parts: StartingParts;

  constructor(parts: StartingParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when the sandbox runs. The same id again is the same sandbox, whatever has become of it.
   * @throws DSecError why it was refused or did not start
   */
  async place(placement: Placement): Promise<SandboxEntry> {
    const { sandboxes, node } = this.#parts;
    if (nodeOfSandboxId(placement.id) !== node)
      throw new DSecError("invalid_argument", `id: ${placement.id} does not name this node, ${node}`);
    const known = sandboxes.get(placement.id);
    const entry = known ?? this.#begin(placement);
    if (entry.record.owner !== placement.owner)
      throw new DSecError("conflict", `sandbox ${placement.id} belongs to another owner`);
    await entry.adoption;
    await entry.start?.done;
    const { state, problem } = entry.record;
    // also when it was an earlier daemon that could not start it
    if (state === "failed" && problem !== undefined) throw fromProblem(problem);
    return entry;
  }

  #begin(placement: Placement): SandboxEntry {
    const { clock, sandboxes, metrics, policyChanges } = this.#parts;
    const entry = sandboxes.insert(newRecord(placement, policyChanges.first(placement), clock.now()));
    sandboxes.touch(entry);
    const controller = new AbortController();
    const done = this.#run(entry, controller).catch((error: unknown) => {
      metrics.startFailed(error);
      throw error;
    });
    done.catch(() => undefined);
    entry.start = { done, abort: (reason) => controller.abort(reason) };
    return entry;
  }

  async #run(entry: SandboxEntry, controller: AbortController): Promise<void> {
    const { sandboxes, slots } = this.#parts;
    let release: () => void = () => undefined;
    try {
      const choice = await this.#prepare(entry, controller.signal);
      if (choice.backend.capabilities.realProcesses) release = await slots.acquire(controller.signal);
      controller.signal.throwIfAborted();
      await this.#parts.admit(entry);
      controller.signal.throwIfAborted();
      entry.backend = choice.backend;
      sandboxes.advance(entry, { type: "begin" }, beginChanges(choice));
      await this.#start(entry, choice, controller);
      if (entry.record.spec.entrypoint) await this.#startService(entry, serviceOf(choice));
    } catch (error) {
      if (entry.record.state === "pending") sandboxes.forget(entry);
      throw error;
    } finally {
      release();
    }
  }

  async #prepare(entry: SandboxEntry, signal: AbortSignal): Promise<ImageChoice> {
    // a refusal must not depend on how long the queue of starts is
    await this.#parts.admit(entry);
    const onProgress = (progress: string): void => this.#parts.sandboxes.change(entry, { progress });
    const choice = await chooseImage(entry.record.spec, this.#parts, signal, onProgress);
    const { enforcement, policyBook } = this.#parts;
    enforcement.check(choice.backend, policyBook.source(entry.record.networkPolicy.digest));
    return choice;
  }

  async #start(entry: SandboxEntry, choice: ImageChoice, controller: AbortController): Promise<void> {
    const { clock, startTimeoutMs, metrics } = this.#parts;
    const began = clock.now();
    const disarm = clock.after(startTimeoutMs, () => controller.abort(timeoutError(entry, startTimeoutMs)));
    const work = this.#launch(entry, choice, controller.signal);
    try {
      const outcome = await within(clock, startTimeoutMs + abandonMs, work);
      if (outcome === "late") throw timeoutError(entry, startTimeoutMs);
      await this.#started(entry, choice.backend, outcome.value);
      metrics.started(choice.backend, clock.now() - began);
    } catch (error) {
      // a straggler that was left to itself must not go on living, nor keep what was prepared for it
      void work
        .then(async (running) => entry.running ?? running.destroy())
        .catch(() => undefined)
        .then(async () => (entry.isEnded ? this.#release(entry) : undefined));
      throw await this.#failed(entry, controller.signal.aborted ? controller.signal.reason : error);
    } finally {
      disarm();
    }
  }

  /** A sandbox whose service cannot be started ends. */
  async #startService(entry: SandboxEntry, argv: string[]): Promise<void> {
    const { execs, ending } = this.#parts;
    try {
      await execs.start(entry, ExecSpec.parse({ argv, detach: true }));
    } catch (error) {
      const known = asStartError(entry, error);
      ending.begin(entry, "start_failed", known.message);
      throw known;
    }
  }

  async #launch(entry: SandboxEntry, choice: ImageChoice, signal: AbortSignal): Promise<Running> {
    const { backend, composition } = choice;
    const { id, spec } = entry.record;
    // rules, then link
    await this.#parts.enforcement.begin(entry, backend);
    if (composition !== undefined)
      entry.prepared = await this.#parts.provisioner?.prepare(
        id,
        composition,
        { diskBytes: limitsOf(spec).diskBytes, network: backend.capabilities.network === "prepared" },
        signal,
      );
    else if (backend.capabilities.network === "joined" && this.#parts.enforcement.of(backend) !== undefined)
      entry.prepared = await this.#parts.provisioner?.link(id, signal);
    const running = await backend.start(startRequest(entry, backend), signal);
    try {
      await this.#parts.audit?.watch(id, running);
      // Before anything runs in it that would already have read them.
      if (backend.capabilities.realProcesses) await this.#parts.trust?.install(running.guest);
      await makeDirectory(defaultDirectory(entry, running.imageDefaults), running);
      await entry.prepared?.started();
    } catch (error) {
      await running.destroy();
      throw error;
    }
    return running;
  }

  async #started(entry: SandboxEntry, backend: Backend, running: Running): Promise<void> {
    const { clock, sandboxes } = this.#parts;
    const now = clock.now();
    const { ttlRunningStop } = entry.record.spec;
    try {
      if (entry.record.state !== "starting") throw stoppedError(entry);
      entry.running = running;
      sandboxes.advance(
        entry,
        { type: "started" },
        {
          startedAt: now,
          lastActiveAt: now,
          idleDeadline: ttlRunningStop === 0 ? undefined : now + ttlRunningStop * 1000,
          deadlineVersion: 1,
          address: running.address,
          backendRecord: running.record,
          provisionerRecord: entry.prepared?.record,
        },
      );
    } catch (error) {
      entry.running = undefined;
      await running.destroy();
      throw error;
    }
    sandboxes.event(entry, "running", `started by ${backend.engine ?? backend.kind}`);
    watchEnd(entry, running, this.#parts.ending);
  }

  async #failed(entry: SandboxEntry, error: unknown): Promise<DSecError> {
    const { sandboxes, log } = this.#parts;
    await this.#release(entry);
    await this.#parts.enforcement.end(entry).catch((cause: unknown) => {
      log.warn({ err: cause, sandbox: entry.id }, "the policy of a failed start could not be forgotten");
    });
    // stopped meanwhile: its tear-down, which waits for this start, ends it
    if (entry.record.state !== "starting") return stoppedError(entry);
    this.#parts.audit?.end(entry.id);
    const known = asStartError(entry, error);
    sandboxes.advance(entry, { type: "fail" }, { endReason: "start_failed", problem: toProblem(known) });
    sandboxes.event(entry, "failed", known.message);
    return known;
  }

  /** Never rejects: what cannot be released at once is tried again behind. */
  async #release(entry: SandboxEntry): Promise<void> {
    const { log, sweep } = this.#parts;
    const { prepared } = entry;
    try {
      await prepared?.release();
    } catch (error) {
      log.warn(
        { err: error, sandbox: entry.id },
        "what was prepared for a failed start could not be released",
      );
      sweep.leaked(prepared);
    }
    entry.prepared = undefined;
  }
}

/** As docker does for a directory that an image names and has not. @param path absolute; what is there stays */
async function makeDirectory(path: string | undefined, { guest }: Running): Promise<void> {
  if (path === undefined) return;
  try {
    await guest.files.mkdir(path, { parents: true });
  } catch (cause) {
    throw new DSecError("start_failed", `the working directory ${path} cannot be made`, { cause });
  }
}

/** Ends the sandbox when its backend says that it is gone. */
export function watchEnd(entry: SandboxEntry, running: Running, ending: Pick<Ending, "begin">): void {
  void running.ended.then(({ reason, message }) => {
    if (entry.running === running) ending.begin(entry, reason, message);
  });
}

function startRequest(entry: SandboxEntry, backend: Backend): StartRequest {
  const { id, spec } = entry.record;
  return {
    id,
    hostname: spec.hostname ?? spec.name ?? id,
    env: spec.env,
    root: rootOf(entry, backend),
    limits: limitsOf(spec),
    ...(entry.prepared?.network === undefined ? {} : { network: entry.prepared.network }),
    ...(entry.prepared?.link === undefined ? {} : { link: entry.prepared.link }),
    ...(spec.simulation === undefined ? {} : { simulation: spec.simulation }),
  };
}

function rootOf({ prepared, record }: SandboxEntry, { capabilities }: Backend): StartRequest["root"] {
  const { image: reference, pull } = record.spec;
  if (capabilities.root === "image") return { type: "image", reference, pull };
  return prepared?.root ?? { type: "none" };
}

function beginChanges({
  backend,
  digest,
  composition,
}: ImageChoice): Pick<SandboxRecord, "engine" | "imageDigest" | "layers" | "progress"> {
  return { engine: backend.engine, imageDigest: digest, layers: composition?.parts, progress: undefined };
}

function timeoutError(entry: SandboxEntry, ms: number): DSecError {
  return new DSecError("start_timeout", `sandbox ${entry.id} did not start within ${ms / 1000} s`);
}

/** What a start that is under way is told when its sandbox ends. */
export function stoppedError(entry: SandboxEntry): DSecError {
  return new DSecError("cancelled", `sandbox ${entry.id} was stopped while it was starting`);
}

/** Named errors of the start pass through; anything else is `start_failed`. */
function asStartError(entry: SandboxEntry, error: unknown): DSecError {
  if (error instanceof DSecError && error.code !== "internal") return error;
  return new DSecError("start_failed", `sandbox ${entry.id} could not be started`, { cause: error });
}
