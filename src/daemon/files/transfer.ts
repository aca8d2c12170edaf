import { DSecError } from "../../protocol/errors.ts";
import type { Clock } from "../clock.ts";

export interface TransferParts {
  readonly clock: Clock;
  /** Milliseconds without a byte after which it is given up. */
  readonly stallMs: number;
  /** Aborts when nobody wants it any more. */
  readonly gone: AbortSignal;
  /** Called whenever bytes have moved. */
  readonly used: () => void;
}

/** One content on its way through this daemon. It takes as long as it likes, but ends when nothing of it moves. */
export class Transfer implements Disposable {
  readonly #parts: TransferParts;
  readonly #controller = new AbortController();
  readonly #giveUp = (): void => this.#controller.abort(this.#parts.gone.reason);
  #movedAt: number;
  #held = false;
  #disarm: () => void = () => undefined;

  constructor(parts: TransferParts) {
    this.#parts = parts;
    this.#movedAt = parts.clock.now();
    if (parts.gone.aborted) this.#giveUp();
    parts.gone.addEventListener("abort", this.#giveUp, { once: true });
    parts.used();
    this.#watch(parts.stallMs);
  }

  /** Aborts with the reason why it cannot go on. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  moved(): void {
    this.#movedAt = this.#parts.clock.now();
    this.#parts.used();
  }

  /** Waits for a receiver, who may take all the time there is. */
  async hold(received: Promise<void>): Promise<void> {
    this.#held = true;
    await received;
    this.#held = false;
    this.moved();
  }

  [Symbol.dispose](): void {
    this.#disarm();
    this.#parts.gone.removeEventListener("abort", this.#giveUp);
  }

  #watch(afterMs: number): void {
    const { clock, stallMs } = this.#parts;
    this.#disarm = clock.after(afterMs, () => {
      const leftMs = this.#held ? stallMs : this.#movedAt + stallMs - clock.now();
      if (leftMs > 0) this.#watch(leftMs);
      else
        this.#controller.abort(
          new DSecError("transfer_stalled", `nothing of the content moved for ${stallMs} ms`, {
            details: { stallMs },
          }),
        );
    });
  }
}
