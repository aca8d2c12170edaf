import type { IncomingMessage } from "node:http";
import type { ContentCheck } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import { fileHeaders } from "../../protocol/file-headers.ts";
import type { Transfer } from "./transfer.ts";

/** Chunks that are taken in before their reader asks; each has at most 64 KiB. */
const ahead = 8;

/** The body of an upload, taken in no faster than it is read. To be read once. */
export class RequestContent implements AsyncIterable<Buffer> {
  /** Bytes so far. */
  size = 0;
  readonly #request: IncomingMessage;
  readonly #transfer: Transfer;
  readonly #chunks: Buffer[] = [];
  #state: "open" | "ended" | "broken" = "open";
  #wake: () => void = () => undefined;

  constructor(request: IncomingMessage, transfer: Transfer) {
    this.#request = request;
    this.#transfer = transfer;
    request.on("data", (chunk: Buffer) => {
      if (this.#state !== "open") return;
      this.#chunks.push(chunk);
      if (this.#chunks.length >= ahead) request.pause();
      this.#wake();
    });
    request.once("end", () => this.#settle("ended"));
    request.once("close", () => this.#settle("broken"));
    request.once("error", () => this.#settle("broken"));
    transfer.signal.addEventListener("abort", () => this.#wake(), { once: true });
  }

  /** What the client has computed on its way; undefined where it announced nothing. */
  get checkAtEnd(): ContentCheck | undefined {
    const announced = this.#request.headers.trailer?.toLowerCase();
    if (announced === undefined) return undefined;
    const kind = announced === fileHeaders.sha256 ? "sha256" : "crc32";
    const value = (): Buffer => {
      const check = this.#request.trailers[fileHeaders[kind]] ?? "";
      const bytes = Buffer.from(check, "hex");
      if (bytes.length * 2 !== check.length || bytes.length !== (kind === "sha256" ? 32 : 4))
        throw new DSecError("invalid_argument", `the trailer ${fileHeaders[kind]} is no ${kind}`);
      return kind === "sha256" ? bytes : bytes.swap32();
    };
    return { kind, value };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    const { signal } = this.#transfer;
    for (;;) {
      signal.throwIfAborted();
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.size += chunk.length;
        this.#transfer.moved();
        yield chunk;
        if (this.#chunks.length < ahead / 2) this.#request.resume();
      } else if (this.#state === "open") {
        const { promise, resolve } = Promise.withResolvers<void>();
        this.#wake = resolve;
        await promise;
      } else if (this.#state === "ended") return;
      else throw new DSecError("connection_lost", "the upload broke off before its end");
    }
  }

  /** Lets the rest pass by, so that a client that still sends gets to read why nobody wants it. */
  discard(): void {
    this.#settle("broken");
    this.#chunks.length = 0;
    this.#request.resume();
  }

  #settle(state: "ended" | "broken"): void {
    if (this.#state === "open") this.#state = state;
    this.#wake();
  }
}
