import { DSecError } from "../../protocol/errors.ts";
import {
  AttachControl,
  type AttachRequest,
  type ExecRecord,
  Resize,
  type StreamOffsets,
} from "../../protocol/exec.ts";
import { execChannel } from "../../protocol/exec-frames.ts";
import type { PlacedFrame } from "./recording-reader.ts";
import {
  type ClientConnection,
  type ClientFrames,
  ClientSocket,
  parseFrame,
  problemStatus,
} from "./client-socket.ts";
import type { LiveExec } from "./live-exec.ts";
import { signalNumber } from "./signals.ts";
import { StdinFeed } from "./stdin-feed.ts";

export interface Attachable {
  readonly record: ExecRecord;
  /** Undefined when it has ended. */
  readonly live: LiveExec | undefined;
  /** Its recorded output, on to its end. */
  frames(signal: AbortSignal): AsyncIterable<PlacedFrame>;
}

/** Attachments of one exec at a time. */
const maxAttachments = 64;

/**
 * One client's attachment to a recorded exec (protocol/exec.ts). It reads what is recorded, and so never slows the process: a client
 * that is slower than the recording's cap is told of the gap. Leaving ends nothing.
 */
export class AttachConnection implements ClientFrames {
  readonly #socket: ClientSocket;
  readonly #exec: Attachable;
  readonly #left = new AbortController();
  readonly #stdin: StdinFeed;
  #request: AttachRequest | undefined;

  constructor(client: ClientConnection, exec: Attachable) {
    this.#exec = exec;
    this.#socket = new ClientSocket(client, this);
    this.#stdin = new StdinFeed((bytes) => this.#socket.control({ type: "credit", bytes }));
  }

  beat(limitMs: number): void {
    this.#socket.beat(limitMs, this.#request !== undefined);
  }

  /** The daemon is about to end; the exec goes on. */
  shutDown(): void {
    this.refused(new DSecError("connection_lost", "the daemon is shutting down"));
  }

  frame(channel: number, payload: Buffer): void {
    if (channel === execChannel.control) {
      const control = parseFrame(AttachControl, payload, "control");
      if (control.type === "attach") this.#attach(control);
      else this.#running().guest?.signal(signalNumber(control.signal), "group");
    } else if (channel === execChannel.resize) {
      const { rows, cols } = parseFrame(Resize, payload, "resize");
      this.#running().guest?.resize(rows, cols);
    } else if (channel === execChannel.stdin) {
      const exec = this.#running();
      if (this.#request?.stdin !== true) throw new DSecError("protocol_error", "stdin was not asked for");
      this.#stdin.accept(payload);
      this.#stdin.pass(payload, exec);
    } else throw new DSecError("protocol_error", `clients do not send on channel ${channel}`);
  }

  refused(error: unknown): void {
    this.#socket.end(problemStatus(error));
    this.#leave();
  }

  gone(): void {
    this.#leave();
  }

  #attach(request: AttachRequest): void {
    if (this.#request !== undefined) throw new DSecError("protocol_error", "an exec is attached to once");
    const { live, record } = this.#exec;
    if (request.stdin) takeStdin(this.#exec, this);
    if (live !== undefined) {
      if (live.attachments >= maxAttachments) {
        live.releaseStdin(this);
        throw new DSecError("connection_limit", `exec ${record.id} has ${maxAttachments} attachments`);
      }
      live.attachments += 1;
    }
    this.#request = request;
    const from = offsetsOf(request.from, this.#exec);
    this.#socket.control({ type: "attached", execId: record.id, pid: live?.guest?.pid ?? 0, from });
    this.#follow({ ...from }).catch((error: unknown) => this.refused(error));
  }

  async #follow(expected: { -readonly [K in keyof StreamOffsets]: StreamOffsets[K] }): Promise<void> {
    const { signal } = this.#left;
    for await (const { stream, offset, data } of this.#exec.frames(signal)) {
      const end = offset + data.length;
      if (end <= expected[stream]) continue;
      this.#gap(stream, offset - expected[stream]);
      const fresh = data.subarray(Math.max(0, expected[stream] - offset));
      expected[stream] = end;
      await this.#socket.send(execChannel[stream], fresh);
      if (signal.aborted) return;
    }
    if (signal.aborted) return;
    const exit = await this.#end();
    this.#gap("stdout", exit.stdoutBytes - expected.stdout);
    this.#gap("stderr", exit.stderrBytes - expected.stderr);
    this.#socket.end(exit);
  }

  async #end() {
    const { live, record } = this.#exec;
    const exit = live === undefined ? record.exit : await live.done;
    if (exit === undefined) throw new DSecError("agent_lost", `how exec ${record.id} ended is not known`);
    return exit;
  }

  #gap(stream: "stdout" | "stderr", bytes: number): void {
    if (bytes > 0) this.#socket.control({ type: "gap", stream, bytes });
  }

  #running(): LiveExec {
    if (this.#request === undefined)
      throw new DSecError("protocol_error", "the first frame must be an attach");
    if (this.#exec.live !== undefined) return this.#exec.live;
    throw new DSecError("conflict", `exec ${this.#exec.record.id} has ended`);
  }

  #leave(): void {
    if (this.#left.signal.aborted) return;
    this.#left.abort();
    const { live } = this.#exec;
    if (live === undefined) return;
    live.releaseStdin(this);
    if (this.#request !== undefined) live.attachments -= 1;
  }
}

function takeStdin({ live, record }: Attachable, holder: object): void {
  if (live === undefined) throw new DSecError("conflict", `exec ${record.id} has ended`);
  if (!record.stdin) throw new DSecError("conflict", `exec ${record.id} was started without stdin`);
  live.takeStdin(holder);
}

/** Output that is there when it has ended is none of `now`. */
function offsetsOf(from: AttachRequest["from"], { live, record }: Attachable): StreamOffsets {
  if (typeof from === "object") return from;
  if (from === "start") return { stdout: 0, stderr: 0 };
  if (live?.recorder !== undefined) return { ...live.recorder.totals };
  return { stdout: record.exit?.stdoutBytes ?? 0, stderr: record.exit?.stderrBytes ?? 0 };
}
