import { once } from "node:events";
import { WebSocket } from "ws";
import type { ExecSpecInput, ExecStatus, ServerControl } from "../../src/protocol/exec.ts";
import { execChannel } from "../../src/protocol/exec-frames.ts";
import type { Problem } from "../../src/protocol/problem.ts";

/** The client's end of an exec, frame by frame. */
export class ExecSocket {
  readonly socket: WebSocket;
  readonly controls: ServerControl[] = [];
  /** Channels of the frames, in the order they came. */
  readonly channels: number[] = [];
  readonly #chunks: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
  readonly #statuses: ExecStatus[] = [];
  readonly #first = Promise.withResolvers<ServerControl>();
  /** The terminal status; rejects when the connection ends without one. */
  readonly status: Promise<ExecStatus>;
  /** The code the connection was closed with. */
  readonly closed: Promise<number>;

  private constructor(socket: WebSocket) {
    this.socket = socket;
    const status = Promise.withResolvers<ExecStatus>();
    const closed = Promise.withResolvers<number>();
    this.status = status.promise;
    this.status.catch(() => undefined);
    this.closed = closed.promise;
    this.#first.promise.catch(() => undefined);
    socket.on("message", (data: Buffer) => this.#message(data));
    socket.on("error", () => undefined);
    socket.on("close", (code) => {
      const [only, ...more] = this.#statuses;
      if (only === undefined || more.length > 0)
        status.reject(new Error(`closed (${code}) with ${this.#statuses.length} statuses`));
      else status.resolve(only);
      this.#first.reject(new Error("closed before a process had started"));
      closed.resolve(code);
    });
  }

  /** Rejects with the server's problem when it does not upgrade. */
  static async open(address: string, token: string, ref: string, path = "exec"): Promise<ExecSocket> {
    const url = `ws+unix:${address.slice("unix:".length)}:/v1/sandboxes/${ref}/${path}`;
    const socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${token}` },
      perMessageDeflate: false,
    });
    const refused = Promise.withResolvers<never>();
    socket.once("unexpected-response", (_request, response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () =>
        refused.reject(new UpgradeRefused(JSON.parse(Buffer.concat(chunks).toString()) as Problem)),
      );
    });
    const exec = new ExecSocket(socket);
    await Promise.race([once(socket, "open"), refused.promise]);
    return exec;
  }

  /** Resolves when the process has started. */
  get started(): Promise<ServerControl> {
    return this.#first.promise;
  }

  get stdout(): Buffer {
    return Buffer.concat(this.#chunks.stdout);
  }

  get stderr(): Buffer {
    return Buffer.concat(this.#chunks.stderr);
  }

  start(spec: ExecSpecInput): void {
    this.control({ type: "start", spec });
  }

  control(message: unknown): void {
    this.frame(execChannel.control, JSON.stringify(message));
  }

  frame(channel: number, payload: string | Uint8Array): void {
    this.socket.send(Buffer.concat([Buffer.from([channel]), Buffer.from(payload)]));
  }

  #message(data: Buffer): void {
    const payload = data.subarray(1);
    this.channels.push(data[0] ?? -1);
    if (data[0] === execChannel.stdout) this.#chunks.stdout.push(payload);
    else if (data[0] === execChannel.stderr) this.#chunks.stderr.push(payload);
    else if (data[0] === execChannel.status)
      this.#statuses.push(JSON.parse(payload.toString()) as ExecStatus);
    else {
      const control = JSON.parse(payload.toString()) as ServerControl;
      this.controls.push(control);
      this.#first.resolve(control);
    }
  }
}

/** The upgrade was answered by a problem. */
export class UpgradeRefused extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.title);
    this.problem = problem;
  }
}
