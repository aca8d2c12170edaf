import { spawn } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { isErrno } from "../../backends/linux/libc.ts";
import { isMounted, unmountIfMounted } from "../../backends/linux/mount.ts";
import {
  identifyProcess,
  isAlive,
  signalProcess,
  type ProcessIdentity,
} from "../../backends/linux/process.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { Clock } from "../clock.ts";
import { findProgram } from "../resources/program.ts";

export interface RcloneMountOptions {
  /** As rclone takes it: `REMOTE:PATH`. */
  readonly remote: string;
  /** Where it is mounted; absolute, without symlinks. */
  readonly directory: string;
  /** Folder for what was read and for the log, on the node's own disk. */
  readonly cache: string;
  readonly clock: Clock;
  /** In [0, 1). */
  readonly random: () => number;
  /** Called when the mount was lost and another one is in its place: files that are open are lost. */
  readonly onRenewed: () => void;
}

const SIGHUP = 1;
const SIGKILL = 9;
const SIGTERM = 15;
const watchMs = 1000;
const pollMs = 50;
const mountMs = 20_000;
const stopMs = 5000;
const firstPauseMs = 1000;
const longestPauseMs = 30_000;
const longestLogBytes = 16 * 1024 * 1024;

const State = z.object({ remote: z.string(), pid: z.int(), startTime: z.number() });

/** What a sandbox reads is fetched when it is read, and kept on the node; a server that is gone is an error within a minute, not a wait for ever. */
const mountFlags = [
  "--read-only",
  "--allow-other",
  "--vfs-cache-mode=full",
  "--vfs-cache-max-size=20G",
  "--vfs-cache-max-age=720h",
  // Reads jump: with rclone's usual 16 MiB of read-ahead, and requests that double without end, a build fetched five times as much.
  "--vfs-read-chunk-size=256k",
  "--vfs-read-chunk-size-limit=4M",
  "--buffer-size=0",
  // The kernel asks for up to this much at once, where reads follow each other.
  "--max-read-ahead=1M",
  // What a blob holds is in its name: its size is enough to know it by. Some remotes read it whole for a checksum, or ask once more for its time.
  "--vfs-fast-fingerprint",
  "--no-modtime",
  "--no-checksum",
  "--dir-cache-time=1m",
  "--poll-interval=0",
  "--contimeout=5s",
  "--timeout=20s",
  "--low-level-retries=3",
  "--log-level=NOTICE",
];

/**
 * An object store as a directory: `rclone mount`, started, watched and started again by the daemon. It outlives the daemon, since running
 * sandboxes read through it; the next daemon takes it up.
 */
export class RcloneMount {
  readonly #options: RcloneMountOptions;
  readonly #stateFile: string;
  #process: ProcessIdentity | undefined;
  #disarm: () => void = () => undefined;
  #failures = 0;
  #over = false;

  constructor(options: RcloneMountOptions) {
    this.#options = options;
    this.#stateFile = `${options.directory}.json`;
  }

  /** Takes up what an earlier daemon left, or starts it; goes on trying. @throws DSecError `layer_store_unavailable` when this attempt failed */
  async start(): Promise<void> {
    const left = this.#readState();
    if (left !== undefined && isAlive(left) && left.remote === this.#options.remote && this.#isMounted()) {
      this.#process = left;
      this.#watch(watchMs);
    } else await this.#restart(left);
  }

  /** Lets rclone ask its remote again for what it believes to know of directories. */
  async forget(): Promise<void> {
    if (this.#process === undefined || !signalProcess(this.#process, SIGHUP)) return;
    await this.#sleep(2 * pollMs);
  }

  /** Ends the watch; the mount stays for the next daemon. */
  leave(): void {
    this.#over = true;
    this.#disarm();
  }

  async stop(): Promise<void> {
    this.leave();
    await this.#end(this.#process);
    rmSync(this.#stateFile, { force: true });
    try {
      rmdirSync(this.#options.directory);
    } catch (error) {
      if (!isErrno(error, "ENOENT")) throw error;
    }
  }

  #watch(ms: number): void {
    if (this.#over) return;
    this.#disarm = this.#options.clock.after(ms, () => void this.#look());
  }

  async #look(): Promise<void> {
    if (this.#process !== undefined && isAlive(this.#process)) {
      this.#trimLog();
      this.#watch(watchMs);
      return;
    }
    // The reason is in rclone's log; callers find the store unavailable until then.
    await this.#restart(this.#process).catch(() => undefined);
  }

  async #restart(previous: ProcessIdentity | undefined): Promise<void> {
    try {
      await this.#attempt(previous);
      this.#failures = 0;
      this.#options.onRenewed();
      this.#watch(watchMs);
    } catch (error) {
      this.#failures += 1;
      const pause = Math.min(firstPauseMs * 2 ** this.#failures, longestPauseMs);
      this.#watch(pause * (0.5 + this.#options.random() / 2));
      throw error;
    }
  }

  async #attempt(previous: ProcessIdentity | undefined): Promise<void> {
    const { directory, remote } = this.#options;
    await this.#end(previous);
    if (this.#over) throw this.#unavailable(new Error("the daemon is closing"));
    const program = findProgram("rclone");
    if (program === undefined) throw this.#unavailable(new Error("rclone is not installed"));
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    mkdirSync(this.#options.cache, { recursive: true, mode: 0o700 });
    this.#trimLog();
    const log = openSync(this.#log, "a", 0o600);
    let pid: number | undefined;
    try {
      const args = ["mount", ...mountFlags, `--cache-dir=${this.#options.cache}`, "--", remote, directory];
      // A group of its own: what ends the daemon must not end it.
      const child = spawn(program, args, { detached: true, stdio: ["ignore", log, log] });
      child.on("error", () => undefined);
      child.unref();
      pid = child.pid;
    } finally {
      closeSync(log);
    }
    const started = pid === undefined ? undefined : identifyProcess(pid);
    if (started === undefined) throw this.#unavailable(new Error("rclone could not be started"));
    this.#process = started;
    writeFileSync(this.#stateFile, JSON.stringify({ remote, ...started }), { mode: 0o600 });
    const deadline = this.#options.clock.now() + mountMs;
    while (!this.#isMounted()) {
      if (!isAlive(started)) throw this.#unavailable(new Error(`rclone ended: ${this.#lastLogLine()}`));
      if (this.#over || this.#options.clock.now() > deadline) {
        await this.#end(started);
        throw this.#unavailable(new Error(`rclone did not mount it within ${mountMs / 1000} s`));
      }
      await this.#sleep(pollMs);
    }
  }

  async #end(previous: ProcessIdentity | undefined): Promise<void> {
    // First, so that it ends also where it no longer serves requests. Whoever has a file open there keeps it.
    unmountIfMounted(this.#options.directory);
    this.#process = undefined;
    if (previous === undefined || !signalProcess(previous, SIGTERM)) return;
    const deadline = this.#options.clock.now() + stopMs;
    while (isAlive(previous)) {
      if (this.#options.clock.now() > deadline) signalProcess(previous, SIGKILL);
      await this.#sleep(pollMs);
    }
  }

  #isMounted(): boolean {
    // The list of mounts does not ask the file system, which may not answer.
    return isMounted(this.#options.directory);
  }

  get #log(): string {
    return join(this.#options.cache, "rclone.log");
  }

  #trimLog(): void {
    try {
      if (statSync(this.#log).size > longestLogBytes) truncateSync(this.#log);
    } catch {
      // There is none yet, or the disk is failing: a log is not worth the daemon.
    }
  }

  #lastLogLine(): string {
    return readFileSync(this.#log, "utf8").trim().split("\n").at(-1)?.slice(0, 300) ?? "";
  }

  #readState(): z.infer<typeof State> | undefined {
    try {
      return State.parse(JSON.parse(readFileSync(this.#stateFile, "utf8")));
    } catch {
      // Never written, or half of it.
      return undefined;
    }
  }

  #unavailable(cause: Error): DSecError {
    return new DSecError(
      "layer_store_unavailable",
      `the layer store rclone:${this.#options.remote} cannot be mounted`,
      {
        cause,
      },
    );
  }

  async #sleep(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#options.clock.after(ms, resolve);
    });
  }
}
