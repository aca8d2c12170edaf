import { EventEmitter } from "node:events";
import { afterEach, describe, expect, test, vi } from "vitest";
import { DSecError } from "../../src/protocol/errors.ts";
import { execChannel } from "../../src/protocol/exec-frames.ts";
import { ExecConnection, type ExecEvents } from "../../src/sdk/exec-connection.ts";
import type { ExecSocket } from "../../src/sdk/exec-socket.ts";

afterEach(() => {
  vi.useRealTimers();
});

/** The other end of a connection, frame by frame. */
class Wire extends EventEmitter implements ExecSocket {
  readonly OPEN = 1;
  readyState = 1;
  readonly sent: Buffer[] = [];
  readonly calls: string[] = [];

  send(frame: Buffer): void {
    this.sent.push(frame);
  }

  pause(): void {
    this.calls.push("pause");
  }

  resume(): void {
    this.calls.push("resume");
  }

  pong(): void {
    this.calls.push("pong");
  }

  close(code: number): void {
    this.calls.push(`close ${code}`);
    this.readyState = 3;
  }

  terminate(): void {
    this.calls.push("terminate");
    this.readyState = 3;
  }

  arrive(channel: number, payload: string | Buffer | object): void {
    const bytes = typeof payload === "string" || Buffer.isBuffer(payload) ? payload : JSON.stringify(payload);
    this.emit("message", Buffer.concat([Buffer.of(channel), Buffer.from(bytes)]), true);
  }
}

const exited = {
  type: "exit",
  execId: "e1",
  exitCode: 0,
  cause: "exited",
  timedOut: false,
  diskFull: false,
  stdoutBytes: 2,
  stderrBytes: 0,
  durationMs: 1,
};

function connect(events: Partial<ExecEvents> = {}, argv = ["true"]) {
  const wire = new Wire();
  const log: string[] = [];
  const all: ExecEvents = {
    output: (stream, bytes) => void log.push(`${stream} ${String(bytes)}`),
    ended: (outcome) => void log.push(outcome instanceof DSecError ? outcome.code : outcome.type),
    ...events,
  };
  const exec = ExecConnection.start(wire, { argv }, all, undefined);
  return { wire, log, exec };
}

describe("an exec's connection", () => {
  test("begins with the spec and ends with the one status", () => {
    const { wire, log } = connect();
    expect(JSON.parse(String(wire.sent[0]?.subarray(1)))).toEqual({
      type: "start",
      spec: { argv: ["true"] },
    });
    wire.arrive(execChannel.stdout, "hi");
    wire.arrive(execChannel.status, exited);
    wire.arrive(execChannel.stdout, "late");
    wire.emit("close");
    expect(log).toEqual(["stdout hi", "exit"]);
    expect(wire.calls).toEqual(["close 1000"]);
  });

  test("ends in an error when it closes without a status", () => {
    const { wire, log } = connect();
    wire.emit("close");
    expect(log).toEqual(["connection_lost"]);
  });

  test("refuses to begin with more than one frame holds, and says so", async () => {
    const ended = Promise.withResolvers<unknown>();
    const { wire } = connect({ ended: ended.resolve }, ["echo", "x".repeat(100_000), "y".repeat(100_000)]);
    expect(await ended.promise).toMatchObject({ code: "body_too_large", retryable: false, ambiguous: false });
    expect(wire.sent).toEqual([]);
    expect(wire.calls).toEqual(["terminate"]);
  });

  test.each<[string, (wire: Wire) => void]>([
    ["a text frame", (wire) => wire.emit("message", Buffer.from("\u0001text"), false)],
    ["an unknown channel", (wire) => wire.arrive(9, "x")],
    ["an empty frame", (wire) => wire.emit("message", Buffer.alloc(0), true)],
    ["a status that is no JSON", (wire) => wire.arrive(execChannel.status, "{")],
    ["a control that is no object", (wire) => wire.arrive(execChannel.control, "null")],
  ])("%s is a protocol error", (_, misbehave) => {
    const { wire, log } = connect();
    misbehave(wire);
    expect(log).toEqual(["protocol_error"]);
    expect(wire.calls).toEqual(["terminate"]);
  });

  test("ignores controls of newer servers", () => {
    const { wire, log } = connect();
    wire.arrive(execChannel.control, { type: "weather" });
    wire.arrive(execChannel.status, exited);
    expect(log).toEqual(["exit"]);
  });

  test("frames wait for a slow receiver, the status and the end of the connection too", async () => {
    const gates: (() => void)[] = [];
    const log: string[] = [];
    const { wire } = connect({
      async output(_stream, bytes) {
        log.push(`begun ${String(bytes)}`);
        await new Promise<void>((resolve) => gates.push(resolve));
        log.push(`done ${String(bytes)}`);
      },
      ended: (outcome) => void log.push(outcome instanceof DSecError ? outcome.code : outcome.type),
    });
    wire.arrive(execChannel.stdout, "a");
    wire.arrive(execChannel.stdout, "b");
    wire.arrive(execChannel.status, exited);
    wire.emit("close");
    expect(log).toEqual(["begun a"]);
    gates.shift()?.();
    await expect.poll(() => log).toEqual(["begun a", "done a", "begun b"]);
    gates.shift()?.();
    await expect.poll(() => log).toEqual(["begun a", "done a", "begun b", "done b", "exit"]);
  });

  test("gives signs of life while its receiver takes long", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const { promise, resolve } = Promise.withResolvers<void>();
    const { wire } = connect({ output: async () => promise });
    wire.arrive(execChannel.stdout, "a");
    vi.advanceTimersByTime(100_000);
    expect(wire.calls).toEqual(["pause", "pong", "pong", "pong"]);
    resolve();
    await expect.poll(() => wire.calls.at(-1)).toBe("resume");
    vi.advanceTimersByTime(100_000);
    expect(wire.calls.at(-1)).toBe("resume");
    wire.arrive(execChannel.status, exited);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("sends stdin only as far as the window, then as credit comes, in frames of bounded size", async () => {
    const { wire, exec } = connect();
    const written = exec.write(Buffer.alloc(300_000, "x"));
    const bytes = (): number => wire.sent.slice(1).reduce((sum, frame) => sum + frame.length - 1, 0);
    expect(bytes()).toBe(262_144);
    wire.arrive(execChannel.control, { type: "credit", bytes: 10_000 });
    await expect.poll(() => bytes()).toBe(272_144);
    wire.arrive(execChannel.control, { type: "credit", bytes: 100_000 });
    await written;
    expect(bytes()).toBe(300_000);
    expect(Math.max(...wire.sent.map(({ length }) => length))).toBeLessThanOrEqual(65_537);
    exec.end();
    expect(wire.sent.at(-1)).toEqual(Buffer.of(execChannel.stdin));
  });

  test("a write that waits for credit is let go when the process ends", async () => {
    const { wire, exec } = connect();
    const written = exec.write(Buffer.alloc(300_000));
    wire.arrive(execChannel.status, exited);
    await expect(written).resolves.toBeUndefined();
  });
});
