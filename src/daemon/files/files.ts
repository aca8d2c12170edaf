import type { GuestFiles } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ContentRoute } from "../../protocol/routes.ts";
import type { StreamCall } from "../../wire/server/call.ts";
import type { Activity } from "../deadlines/activity.ts";
import type { Clock } from "../clock.ts";
import { reach } from "../reach.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import { RequestContent } from "./request-content.ts";
import { ResponseContent } from "./response-content.ts";
import { Transfer } from "./transfer.ts";

export interface FilesParts {
  readonly clock: Clock;
  readonly sandboxes: Sandboxes;
  readonly activity: Pick<Activity, "used">;
  /** Milliseconds without a byte after which a transfer is given up. */
  readonly transferStallMs: number;
}

/** The files of this node's sandboxes. Every operation is activity of the sandbox. */
export class Files {
  readonly #parts: FilesParts;

  constructor(parts: FilesParts) {
    this.#parts = parts;
  }

  /** @throws DSecError `not_found`, `ambiguous_reference`, `sandbox_not_running`, `file_error` with details.errno */
  async run<T>(ref: string, work: (files: GuestFiles) => Promise<T>): Promise<T> {
    const entry = await reach(this.#parts.sandboxes, ref);
    const { guest } = entry.requireRunning();
    this.#parts.activity.used(entry);
    try {
      return await work(guest.files);
    } catch (error) {
      throw explained(entry, error);
    }
  }

  /**
   * Takes a content in. What is left of it after a failure passes by unread.
   * @param work its `prefersDirectWrites`: whether a large file is better written past the page cache
   */
  async upload<N extends ContentRoute, T>(
    call: StreamCall<N>,
    work: (
      files: GuestFiles,
      content: RequestContent,
      given: { readonly signal: AbortSignal; readonly prefersDirectWrites: boolean },
    ) => Promise<T>,
  ): Promise<T> {
    try {
      return await this.#transfer(call, async (files, transfer, prefersDirectWrites) => {
        const content = new RequestContent(call.request, transfer);
        try {
          return await work(files, content, { signal: transfer.signal, prefersDirectWrites });
        } catch (error) {
          content.discard();
          throw error;
        }
      });
    } catch (error) {
      call.request.resume();
      throw error;
    }
  }

  /** Gives a content out. A failure before its begin is answered, a later one cuts the answer. */
  async download<N extends ContentRoute>(
    call: StreamCall<N>,
    work: (files: GuestFiles, content: ResponseContent, signal: AbortSignal) => Promise<void>,
  ): Promise<void> {
    await this.#transfer(call, async (files, transfer) =>
      work(files, new ResponseContent(call.response, transfer), transfer.signal),
    );
  }

  async #transfer<N extends ContentRoute, T>(
    call: StreamCall<N>,
    work: (files: GuestFiles, transfer: Transfer, prefersDirectWrites: boolean) => Promise<T>,
  ): Promise<T> {
    const { clock, sandboxes, activity, transferStallMs: stallMs } = this.#parts;
    const entry = await reach(sandboxes, call.params["ref"] ?? "");
    const { guest } = entry.requireRunning();
    const used = (): void => activity.used(entry);
    using transfer = new Transfer({ clock, stallMs, gone: call.signal, used });
    try {
      return await work(guest.files, transfer, entry.prepared?.prefersDirectWrites ?? false);
    } catch (error) {
      throw explained(entry, error);
    }
  }
}

/** A sandbox that ends takes the connection to its agent with it. */
function explained(entry: SandboxEntry, error: unknown): unknown {
  const isLost = error instanceof DSecError && error.code === "agent_lost";
  if (!isLost || entry.record.state === "running") return error;
  return new DSecError("sandbox_not_running", `sandbox ${entry.id} ended meanwhile`, {
    cause: error,
    ambiguous: error.ambiguous,
    details: { state: entry.record.state },
  });
}
