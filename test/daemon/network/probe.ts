/** A program (probe.c) that tries one thing of the network in somebody's place: a stream of its stdin and stdout. */
import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { execChannel } from "../../../src/protocol/exec-frames.ts";
import type { TestDaemon } from "../daemon-fixture.ts";

const run = promisify(execFile);
const source = fileURLToPath(new URL("./probe.c", import.meta.url));

interface Process {
  /** To its stdin; undefined is the end. */
  readonly send: (bytes: Buffer | undefined) => void;
  readonly kill: () => void;
}

export class Probe extends Duplex {
  /** Settles when it has what it asked for; an errno's name when it never will. */
  readonly up: Promise<string | undefined>;
  /** Settles at its end; an errno's name when that was not its own or its peer's will. */
  readonly over: Promise<string | undefined>;
  readonly #process: Process;
  readonly #up = Promise.withResolvers<string | undefined>();
  readonly #over = Promise.withResolvers<string | undefined>();
  #words = "";

  constructor(process: Process) {
    super();
    this.#process = process;
    this.up = this.#up.promise;
    this.over = this.#over.promise;
    this.on("error", () => undefined);
  }

  /** What it says on stderr. */
  said(words: string): void {
    this.#words += words;
    if (this.#words.startsWith("up\n")) this.#up.resolve(undefined);
  }

  /** All of it has been said. */
  ended(): void {
    const [reason = ""] = this.#words.replace(/^up\n/, "").split("\n");
    this.#up.resolve(reason === "" ? "closed" : reason);
    this.#over.resolve(reason === "" ? undefined : reason);
    if (!this.destroyed) this.push(null);
  }

  override _read(): void {
    // What comes is pushed as it comes: tests ask for little.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#process.send(chunk);
    done();
  }

  override _final(done: () => void): void {
    this.#process.send(undefined);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#process.kill();
    done(error);
  }
}

/** Starts probes in one place. */
export type Place = (argv: readonly string[]) => Promise<Probe>;

/** Root with every capability, in a network namespace of this machine. @param program of {@link buildProbe} */
export function inNamespace(netnsPath: string, program: string): Place {
  return async (argv) => {
    const child = spawn("nsenter", [`--net=${netnsPath}`, program, ...argv], { stdio: "pipe" });
    const probe = new Probe({
      send: (bytes) => void (bytes === undefined ? child.stdin.end() : child.stdin.write(bytes)),
      kill: () => void child.kill("SIGKILL"),
    });
    child.stdin.on("error", () => undefined);
    child.stdout.on("data", (bytes: Buffer) => probe.destroyed || probe.push(bytes));
    child.stderr.setEncoding("utf8").on("data", (words: string) => probe.said(words));
    child.once("close", () => probe.ended());
    return probe;
  };
}

const pathInside = "/bin/probe";

/** Root in a sandbox. @param program of {@link buildProbe} */
export function inSandbox(daemonOf: () => TestDaemon, id: string): Place {
  return async (argv) => {
    const exec = await daemonOf().exec(id, [pathInside, ...argv], { stdin: true });
    const probe = new Probe({
      send: (bytes) => exec.frame(execChannel.stdin, bytes ?? ""),
      kill: () => exec.socket.terminate(),
    });
    exec.socket.on("message", (data: Buffer) => {
      const payload = data.subarray(1);
      if (data[0] === execChannel.stdout) probe.push(payload);
      else if (data[0] === execChannel.stderr) probe.said(payload.toString());
    });
    const ended = () => probe.ended();
    exec.status.then(ended, ended);
    return probe;
  };
}

/** Puts the program where {@link inSandbox} finds it. */
export async function installProbe(daemon: TestDaemon, id: string, program: Buffer): Promise<void> {
  const script = `cat > ${pathInside} && chmod 755 ${pathInside}`;
  const exec = await daemon.exec(id, ["sh", "-c", script], { stdin: true });
  exec.frame(execChannel.stdin, program);
  exec.frame(execChannel.stdin, "");
  const status = await exec.status;
  if (status.type !== "exit" || status.exitCode !== 0) throw new Error(`no probe in ${id}: ${exec.stderr}`);
}

/** Builds the program, static, so that it runs in any sandbox. */
export async function buildProbe(scope: AsyncDisposableStack): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-probe-"));
  scope.defer(() => rm(directory, { recursive: true, force: true }));
  const program = join(directory, "probe");
  await run("musl-gcc", ["-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", "-o", program, source]);
  return program;
}
