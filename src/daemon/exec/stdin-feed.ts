import { DSecError } from "../../protocol/errors.ts";
import { stdinWindow } from "../../protocol/exec-frames.ts";
import type { LiveExec } from "./live-exec.ts";

/** Credit is given back in portions, or when the client may be waiting for it. */
const creditPortion = stdinWindow / 4;

/** One client's stdin on its way to a process: never more than the window, credited as the process takes it. */
export class StdinFeed {
  readonly #grant: (bytes: number) => void;
  #queue: Promise<void> = Promise.resolve();
  #isEnded = false;
  /** Bytes the client sent beyond the credit it got. */
  #outstanding = 0;
  #credit = 0;

  constructor(grant: (bytes: number) => void) {
    this.#grant = grant;
  }

  /** Takes a frame in; an empty one is the end. @throws DSecError `protocol_error` */
  accept(payload: Buffer): void {
    if (this.#isEnded) throw new DSecError("protocol_error", "stdin had ended already");
    this.#isEnded = payload.length === 0;
    this.#outstanding += payload.length;
    if (this.#outstanding > stdinWindow)
      throw new DSecError("protocol_error", `more than ${stdinWindow} bytes of stdin came without credit`);
  }

  /** Hands a frame that was taken in on to the process. */
  pass(payload: Buffer, exec: LiveExec): void {
    if (payload.length === 0) {
      this.#queue = this.#queue.then(() => exec.endStdin());
      return;
    }
    this.#queue = this.#queue
      .then(async () => exec.guest?.write(payload))
      // a guest that is lost ends the exec by itself
      .catch(() => undefined)
      .then(() => this.#passed(payload.length));
  }

  #passed(bytes: number): void {
    this.#outstanding -= bytes;
    this.#credit += bytes;
    if (this.#credit < creditPortion && this.#outstanding > 0) return;
    const credit = this.#credit;
    this.#credit = 0;
    this.#grant(credit);
  }
}
