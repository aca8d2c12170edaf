/**
 * What can be done inside a running sandbox, whatever carries it: the interface between the daemon and the inside.
 *
 * Implemented by {@link AgentConnection} over the agent's channel (PROTOCOL.md) and by the simulated backend.
 */
import type { Duplex } from "node:stream";

/** One process to start. `argv` is passed on exactly as given. */
export interface GuestExecSpec {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Absolute path inside the sandbox. */
  readonly cwd?: string;
  /** `name`, `uid`, `name:group` or `uid:gid`. */
  readonly user?: string;
  /** A terminal of this size; stdout and stderr are then one stream (`stdout`). */
  readonly tty?: { readonly rows: number; readonly cols: number };
  /** Whether stdin is a pipe the caller writes to; otherwise it is /dev/null. */
  readonly stdin: boolean;
  /** Milliseconds after which the whole process tree is killed. */
  readonly timeoutMs?: number;
}

export type OutputStream = "stdout" | "stderr";

/**
 * Receives output in order. `offset` counts the stream's bytes from the exec's start. The returned promise resolves when
 * the chunk is consumed; only then is the guest given credit for more, so a slow sink slows the process.
 */
export type OutputSink = (stream: OutputStream, offset: number, chunk: Buffer) => void | Promise<void>;

export interface GuestExit {
  /** Exit code 0–255; 128 + signal where a signal ended the process. */
  readonly code: number;
  readonly signal?: number;
  readonly timedOut: boolean;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
}

/**
 * Whom a signal goes to: the process, its group, everything it ever started, or what it began since the last
 * {@link GuestExec.mark}, itself excepted, which stands still until all of those have got it.
 */
export type SignalScope = "process" | "group" | "tree" | "begun";

/** A process that was started: execve has succeeded. */
export interface GuestExec {
  /** Identifies the exec for the sandbox's whole life, also over a new connection. */
  readonly channel: number;
  /** Process id inside the sandbox. */
  readonly pid: number;
  /** Resolves when the bytes fit the stdin window; after the process ended they are dropped. */
  write(chunk: Uint8Array): Promise<void>;
  /** Ends stdin. */
  end(): void;
  /** No error when the process has already ended. */
  signal(signal: number, scope: SignalScope): void;
  /** What the process starts from now on is what the scope `begun` reaches. */
  mark(): void;
  resize(rows: number, cols: number): void;
  /**
   * Settles after the sink has consumed every byte. Rejects with code `agent_lost` when the connection is lost: the
   * process may go on, and {@link Guest.resume} over a new connection takes it up.
   */
  readonly exit: Promise<GuestExit>;
  /** Forgets the exec inside; kills its tree if it still runs. */
  release(): void;
}

/** An exec that a new connection found inside. */
export interface LiveExec {
  readonly channel: number;
  readonly state: "running" | "exited";
  readonly pid: number;
}

export type FileType = "file" | "directory" | "symlink" | "fifo" | "socket" | "character" | "block";

export interface GuestFileInfo {
  /** Base name for a listing, the path as asked for a stat. Raw bytes, since names need not be UTF-8. */
  readonly name: Buffer;
  readonly type: FileType;
  /** Permission bits, e.g. 0o644. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes. */
  readonly size: number;
  /** Milliseconds since the epoch. */
  readonly mtimeMs: number;
  readonly linkTarget?: Buffer;
}

/** Asked for at the end of a content: its SHA-256, 32 bytes, or its CRC-32, 4 bytes in little endian. */
export interface ContentCheck {
  readonly kind: "sha256" | "crc32";
  readonly value: () => Buffer;
}

/** What the inside is given to check a content by. */
export interface GuestContentOptions {
  /** The content's expected SHA-256, 32 bytes. */
  readonly sha256?: Buffer;
  /** What the content is checked by once it has ended. */
  readonly checkAtEnd?: ContentCheck;
  /** Ends the operation; what it has not put in its place is gone then. */
  readonly signal?: AbortSignal;
}

export interface GuestWriteOptions extends GuestContentOptions {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  /** Bytes the content must have. */
  readonly size?: number;
  /** Milliseconds since the epoch; now by default. */
  readonly mtimeMs?: number;
  /** Whether it is to be written past the page cache, where that can be. */
  readonly direct?: boolean;
}

export interface GuestReadOptions {
  /** Called before the content comes. */
  readonly begun?: (info: GuestFileInfo) => void;
  readonly signal?: AbortSignal;
}

export interface GuestExtractOptions extends GuestContentOptions {
  /** Whether the archive says who owns what; otherwise uid and gid do, by default root, and no set-id bits are set. */
  readonly owners: boolean;
  readonly uid?: number;
  readonly gid?: number;
}

/** What became of an archive. */
export interface GuestArchiveResult {
  readonly entries: number;
  /** Bytes of the files in it. */
  readonly bytes: number;
  /** What was left out; the first hundred by name, under `path` as in the archive. */
  readonly skipped: readonly { readonly path: Buffer; readonly errno: string }[];
  readonly skippedCount: number;
}

/** An absolute path inside the sandbox. Bytes, since names need not be UTF-8. */
export type GuestPath = string | Uint8Array;

/** Receives content in order; more comes when the promise has resolved. */
export type ContentSink = (chunk: Buffer) => void | Promise<void>;

/** File operations, resolved inside the sandbox. Paths are absolute; failures carry the guest's errno. */
export interface GuestFiles {
  read(
    path: GuestPath,
    range: { offset?: number; length?: number },
    sink: ContentSink,
    options?: GuestReadOptions,
  ): Promise<GuestFileInfo>;
  /** Resolves when the content was checked and is in its place. Its chunks must not be changed afterwards. */
  write(path: GuestPath, content: AsyncIterable<Uint8Array>, options: GuestWriteOptions): Promise<void>;
  /** A file or a tree as a tar archive, in which it goes by `name`. Only a symlink at the end of the path is followed, if asked. */
  archive(
    path: GuestPath,
    options: GuestReadOptions & { readonly name: Uint8Array; readonly followSymlink: boolean },
    sink: ContentSink,
  ): Promise<GuestArchiveResult>;
  /** Takes a tar archive apart in a directory. Nothing of it gets elsewhere; each entry is whole or not there. */
  extract(
    path: GuestPath,
    content: AsyncIterable<Uint8Array>,
    options: GuestExtractOptions,
  ): Promise<GuestArchiveResult>;
  stat(path: GuestPath, options: { followSymlink: boolean }): Promise<GuestFileInfo>;
  /** @throws DSecError `output_too_large` for more entries than are to be held in memory */
  list(path: GuestPath): Promise<GuestFileInfo[]>;
  mkdir(path: GuestPath, options: { parents: boolean; mode?: number }): Promise<void>;
  remove(path: GuestPath, options: { recursive: boolean }): Promise<void>;
  rename(from: GuestPath, to: GuestPath): Promise<void>;
}

export interface Guest {
  exec(spec: GuestExecSpec, sink: OutputSink): Promise<GuestExec>;
  /** Takes up an exec found after a reconnect, from the given offsets on. */
  resume(channel: number, offsets: { stdout: number; stderr: number }, sink: OutputSink): Promise<GuestExec>;
  /** What was found inside when this connection was made. */
  readonly live: readonly LiveExec[];
  /** A TCP connection made inside the sandbox's network. `host` defaults to its loopback. */
  dial(port: number, host?: string): Promise<Duplex>;
  readonly files: GuestFiles;
  /** Resolves when the guest has answered. */
  ping(): Promise<void>;
  /** Drops the connection; what runs inside goes on. */
  close(): void;
  /** Resolves, never rejects, when the connection is gone. */
  readonly closed: Promise<void>;
}
