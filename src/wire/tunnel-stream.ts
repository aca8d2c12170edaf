import { Socket } from "node:net";
import { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { fromProblem, toProblem } from "../protocol/problem-codec.ts";
import type { Problem } from "../protocol/problem.ts";
import { maxTunnelData, maxTunnelProblem, tunnelFrame, tunnelHeaderBytes } from "../protocol/tunnel.ts";

/** Milliseconds between two looks whether a client still is there whose bytes are not taken. */
const pingMs = 30_000;
/** Milliseconds that the last frame of a failed tunnel gets to leave. */
const farewellMs = 5000;

/**
 * One end of a tunnel (protocol/tunnel.ts) over an upgraded connection: a byte stream whose two directions end on their own, and whose
 * end is told from its breaking. Destroyed with an error, the server's end tells the client why. Nothing is kept here
 * but what the two streams' high-water marks allow.
 */
export class TunnelStream extends Duplex {
  readonly #socket: Duplex;
  readonly #isServer: boolean;
  /** Of the frame that is arriving. */
  readonly #header = Buffer.alloc(tunnelHeaderBytes);
  #headerBytes = 0;
  #isOpen = false;
  #payloadLeft = 0;
  #problem: Buffer[] = [];
  /** The other end has ended its direction. */
  #ended = false;
  /** `end` has been written. */
  #finished = false;
  #pinging: NodeJS.Timeout | undefined;

  /** @param head what came with the upgrade */
  constructor(socket: Duplex, side: "client" | "server", head: Buffer) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
    this.#isServer = side === "server";
    socket.on("end", () => this.#broken());
    socket.on("error", (cause: Error) => this.#broken(cause));
    socket.on("close", () => this.#broken());
    // whoever awaits this stream must have a chance to listen before anything happens to it
    setImmediate(() => {
      this.#isOpen = true;
      socket.on("data", (chunk: Buffer) => this.#receive(chunk));
      if (head.length > 0) this.#receive(head);
    });
  }

  /** As of a socket: whether it keeps the process from ending. */
  ref(): void {
    if (this.#socket instanceof Socket) this.#socket.ref();
  }

  unref(): void {
    if (this.#socket instanceof Socket) this.#socket.unref();
  }

  override _read(): void {
    // without a listener the socket would drop what it reads
    if (!this.#isOpen) return;
    clearInterval(this.#pinging);
    this.#pinging = undefined;
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#socket.cork();
    let isTaken = true;
    for (let at = 0; at < chunk.length; at += maxTunnelData) {
      const data = chunk.subarray(at, at + maxTunnelData);
      this.#socket.write(frameHeader(tunnelFrame.data, data.length));
      isTaken = this.#socket.write(data);
    }
    this.#socket.uncork();
    if (isTaken) done();
    else this.#socket.once("drain", () => done());
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#finished = true;
    this.#socket.write(frameHeader(tunnelFrame.end, 0));
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    done(error);
    clearInterval(this.#pinging);
    const socket = this.#socket;
    if (socket.destroyed) return;
    if (error !== null && this.#isServer) this.#farewell(error);
    else if (error === null && this.#ended && this.#finished) {
      // what is written last must still arrive
      socket.end(() => socket.destroy());
      socket.resume();
    } else socket.destroy();
  }

  #farewell(error: Error): void {
    const socket = this.#socket;
    let payload = Buffer.from(JSON.stringify(toProblem(error)));
    if (payload.length > maxTunnelProblem) {
      const { type, title, status, code, retryable, ambiguous } = toProblem(error);
      payload = Buffer.from(
        JSON.stringify({ type, title: title.slice(0, 1000), status, code, retryable, ambiguous }),
      );
    }
    socket.write(frameHeader(tunnelFrame.problem, payload.length));
    const timer = setTimeout(() => socket.destroy(), farewellMs).unref();
    socket.once("close", () => clearTimeout(timer));
    socket.end(payload, () => socket.destroy());
  }

  #receive(chunk: Buffer): void {
    let isWanted = true;
    for (let at = 0; at < chunk.length && !this.destroyed;) {
      if (this.#payloadLeft === 0) {
        const part = chunk.subarray(at, at + tunnelHeaderBytes - this.#headerBytes);
        this.#header.set(part, this.#headerBytes);
        this.#headerBytes += part.length;
        at += part.length;
        if (this.#headerBytes === tunnelHeaderBytes)
          this.#begin(this.#header[0], this.#header.readUInt32LE(1));
        continue;
      }
      const part = chunk.subarray(at, at + this.#payloadLeft);
      at += part.length;
      this.#payloadLeft -= part.length;
      if (this.#payloadLeft === 0) this.#headerBytes = 0;
      if (this.#header[0] === tunnelFrame.problem) this.#collect(part);
      else isWanted = this.push(part);
    }
    if (!isWanted && !this.#ended && !this.destroyed) this.#pause();
  }

  /** A paused socket does not notice that its other end has gone, unless something is written to it. */
  #pause(): void {
    this.#socket.pause();
    if (!this.#isServer) return;
    this.#pinging ??= setInterval(() => {
      if (this.#socket.writableLength === 0) this.#socket.write(frameHeader(tunnelFrame.ping, 0));
    }, pingMs).unref();
  }

  #begin(kind: number | undefined, length: number): void {
    if (!this.#isValid(kind, length)) {
      this.destroy(new DSecError("protocol_error", "what came through the tunnel is not its protocol"));
      return;
    }
    this.#payloadLeft = length;
    if (length > 0) return;
    this.#headerBytes = 0;
    if (kind !== tunnelFrame.end) return;
    this.#ended = true;
    this.push(null);
  }

  #isValid(kind: number | undefined, length: number): boolean {
    switch (kind) {
      case tunnelFrame.data:
        return length > 0 && length <= maxTunnelData && !this.#ended;
      case tunnelFrame.end:
        return length === 0 && !this.#ended;
      case tunnelFrame.problem:
        return length > 0 && length <= maxTunnelProblem && !this.#isServer;
      case tunnelFrame.ping:
        return length === 0 && !this.#isServer;
      default:
        return false;
    }
  }

  #collect(part: Buffer): void {
    this.#problem.push(part);
    if (this.#payloadLeft > 0) return;
    try {
      this.destroy(fromProblem(JSON.parse(Buffer.concat(this.#problem).toString()) as Problem));
    } catch (cause) {
      this.destroy(new DSecError("protocol_error", "the tunnel's problem is not valid JSON", { cause }));
    }
  }

  #broken(cause?: Error): void {
    if (this.destroyed || (this.#ended && this.#finished)) return;
    this.destroy(new DSecError("connection_lost", "the tunnel broke", cause === undefined ? {} : { cause }));
  }
}

function frameHeader(kind: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(tunnelHeaderBytes);
  header.writeUInt8(kind, 0);
  header.writeUInt32LE(length, 1);
  return header;
}
