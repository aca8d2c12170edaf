import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { DSecError } from "../../protocol/errors.ts";
import { type AuditPrograms, unavailable } from "./audit-programs.ts";
import { type AuditedNamespace, encodeRequest, headOf, recordKinds } from "./event-codec.ts";
import { FrameSplitter } from "./frame-splitter.ts";

export interface AuditReaderParts {
  readonly programs: AuditPrograms;
  /** An event, or what was lost; its memory is another's when this returns. */
  readonly record: (record: Buffer) => void;
  /** It has ended without {@link AuditReader.close}, after it was ready. */
  readonly ended: (reason: DSecError) => void;
}

/** For the programs to be loaded: the kernel verifies them, on however busy a machine. */
const readyMs = 60_000;
const closeMs = 5000;
/** Bytes kept of the end of what it says on stderr. */
const saidBytes = 4096;

/** The process that has the kernel tell, and passes on what it says. Programs and maps are its, and go with it. */
export class AuditReader {
  readonly #parts: AuditReaderParts;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #ready = Promise.withResolvers<void>();
  readonly #exited = Promise.withResolvers<void>();
  readonly #frames = new FrameSplitter();
  /** Requests that were not answered yet: they are in turn. */
  readonly #pending: (() => void)[] = [];
  #isReady = false;
  #closing = false;
  #said = "";

  private constructor(parts: AuditReaderParts) {
    this.#parts = parts;
    const { reader, bpftool, object } = parts.programs;
    this.#child = spawn(reader, [bpftool, object], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { LC_ALL: "C", PATH: process.env["PATH"] ?? "" },
    });
    this.#child.stdin.on("error", () => undefined);
    this.#child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#said = (this.#said + text).slice(-saidBytes);
    });
    this.#child.stdout.on("data", (chunk: Buffer) => this.#take(chunk));
    this.#child.on("error", (error) => this.#end(error.message));
    this.#child.on("close", (code, signal) => this.#end(this.#said.trim() || `ended by ${code ?? signal}`));
  }

  /** Resolves when the kernel tells. @throws DSecError `audit_unavailable`; nothing is left */
  static async start(parts: AuditReaderParts): Promise<AuditReader> {
    const reader = new AuditReader(parts);
    const timer = setTimeout(() => reader.#child.kill("SIGKILL"), readyMs);
    try {
      await reader.#ready.promise;
      return reader;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Resolves when it is in force, or when the reader has ended. */
  async add(sandbox: AuditedNamespace, token: number): Promise<void> {
    await this.#ask(encodeRequest("add", sandbox, token));
  }

  /** Resolves when everything of the sandbox was told, or when the reader has ended. */
  async remove(sandbox: AuditedNamespace, token: number): Promise<void> {
    await this.#ask(encodeRequest("remove", sandbox, token));
  }

  /** Resolves when the process is gone, and with it everything that was loaded. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), closeMs);
    await this.#exited.promise;
    clearTimeout(timer);
  }

  async #ask(request: Buffer): Promise<void> {
    if (!this.#isReady || this.#closing) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#pending.push(resolve);
    this.#child.stdin.write(request);
    await promise;
  }

  #take(chunk: Buffer): void {
    try {
      for (const record of this.#frames.push(chunk)) this.#dispatch(record);
    } catch (error) {
      this.#said = `what it said cannot be read: ${String(error)}`;
      this.#child.kill("SIGKILL");
    }
  }

  #dispatch(record: Buffer): void {
    const { kind } = headOf(record);
    if (kind === recordKinds.ready) {
      this.#isReady = true;
      this.#ready.resolve();
    } else if (kind === recordKinds.done) this.#pending.shift()?.();
    else this.#parts.record(record);
  }

  #end(said: string): void {
    const wasReady = this.#isReady;
    this.#isReady = false;
    const reason = unavailable(said);
    this.#ready.reject(reason);
    this.#exited.resolve();
    for (const resolve of this.#pending.splice(0)) resolve();
    if (wasReady && !this.#closing) this.#parts.ended(reason);
  }
}
