import { Duplex } from "node:stream";

const HEADER = 8;
const STDOUT = 1;
const STDERR = 2;
/** Characters of stderr that are kept for the error message of an agent that dies. */
const KEPT_STDERR = 2048;

/**
 * A container's attach stream as the duplex stream of its agent: stdin and stdout, with stderr's end kept for diagnosis. Docker
 * multiplexes the two outputs by an 8-byte header (stream, three zeros, length in big endian) before each piece; pieces are
 * passed on as they arrive, so nothing is buffered whatever length they claim.
 */
export class AttachStream extends Duplex {
  readonly #connection: Duplex;
  readonly #header = Buffer.alloc(HEADER);
  #headerBytes = 0;
  #piece = { stream: STDOUT, left: 0 };
  #stderr = "";

  /** Takes over `connection`, the upgraded connection of an attach request. */
  constructor(connection: Duplex) {
    super();
    this.#connection = connection;
    // It may break before anyone listens; whoever reads it learns of it from its close.
    this.on("error", () => undefined);
    connection.on("data", (chunk: Buffer) => this.#demultiplex(chunk));
    connection.once("end", () => this.#endReading());
    connection.on("error", (error) => this.destroy(error));
    connection.once("close", () => this.#endReading());
  }

  /** What the agent said on stderr, its end. */
  get stderr(): string {
    return this.#stderr.trim();
  }

  override _read(): void {
    this.#connection.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#connection.write(chunk, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#connection.cork();
    chunks.forEach(({ chunk }, index) => {
      this.#connection.write(chunk, index === chunks.length - 1 ? done : undefined);
    });
    this.#connection.uncork();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#connection.destroy();
    done(error);
  }

  /** The write side stays open: ending it means nothing to a container. */
  #endReading(): void {
    if (!this.destroyed) this.push(null);
  }

  #demultiplex(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#piece.left === 0) {
        at += this.#readHeader(chunk.subarray(at));
        if (this.destroyed) return;
        continue;
      }
      const bytes = chunk.subarray(at, at + this.#piece.left);
      at += bytes.length;
      this.#piece.left -= bytes.length;
      if (this.#piece.stream === STDERR) {
        this.#stderr = (this.#stderr + bytes.toString("latin1")).slice(-KEPT_STDERR);
      } else if (!this.push(bytes)) {
        this.#connection.pause();
      }
    }
  }

  /** Returns how many bytes it took. */
  #readHeader(bytes: Buffer): number {
    const taken = bytes.copy(this.#header, this.#headerBytes, 0, HEADER - this.#headerBytes);
    this.#headerBytes += taken;
    if (this.#headerBytes < HEADER) return taken;
    this.#headerBytes = 0;
    const stream = this.#header.readUInt8(0);
    if (stream !== STDOUT && stream !== STDERR) {
      this.destroy(new Error(`the attach stream names an output ${stream} that does not exist`));
      return taken;
    }
    this.#piece = { stream, left: this.#header.readUInt32BE(4) };
    return taken;
  }
}
