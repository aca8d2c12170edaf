import type { ServerResponse } from "node:http";
import { DSecError } from "../../protocol/errors.ts";
import type { Transfer } from "./transfer.ts";

/** The body of an answer, written no faster than its receiver reads. */
export class ResponseContent {
  readonly #response: ServerResponse;
  readonly #transfer: Transfer;
  /** Bytes that were promised and have not been written; undefined where none were. */
  #left: number | undefined;

  constructor(response: ServerResponse, transfer: Transfer) {
    this.#response = response;
    this.#transfer = transfer;
  }

  /** @param size bytes that will come, where that is known */
  begin(headers: Readonly<Record<string, string>>, size?: number): void {
    this.#left = size;
    this.#response.writeHead(200, {
      ...headers,
      ...(size === undefined ? {} : { "content-length": size }),
      "cache-control": "no-store",
    });
  }

  /** Beyond what was promised nothing is written: a file may have grown meanwhile. */
  write(chunk: Buffer): void | Promise<void> {
    const part = this.#left === undefined ? chunk : chunk.subarray(0, this.#left);
    if (this.#left !== undefined) this.#left -= part.length;
    this.#transfer.moved();
    if (part.length === 0 || this.#response.write(part)) return undefined;
    return this.#transfer.hold(this.#drained());
  }

  /** @throws DSecError `file_error` when the file has become shorter meanwhile */
  end(trailers?: Readonly<Record<string, string>>): void {
    if (this.#left !== undefined && this.#left > 0)
      throw new DSecError("file_error", "the file became shorter while it was read");
    if (trailers !== undefined) this.#response.addTrailers(trailers);
    this.#response.end();
  }

  #drained(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const response = this.#response;
    const done = (): void => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.on("drain", done).on("close", done);
    if (response.closed) done();
    return promise;
  }
}
