/** A directory of another machine, mounted by rclone: what is read is fetched, in growing pieces, and kept on the node's disk. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isMounted } from "../../../../src/backends/linux/mount.ts";
import { runProgram } from "../../../../src/daemon/resources/program.ts";

const mountDeadlineMs = 20_000;

export class RemoteDirectory implements AsyncDisposable {
  readonly path: string;
  readonly #rclone: ChildProcess;

  private constructor(path: string, rclone: ChildProcess) {
    this.path = path;
    this.#rclone = rclone;
  }

  /**
   * @param url of an rclone WebDAV server
   * @param directory for the mount point and the cache
   */
  static async mount(url: string, directory: string): Promise<RemoteDirectory> {
    const path = join(directory, "remote");
    await mkdir(path, { recursive: true });
    const rclone = spawn(
      "rclone",
      [
        "mount",
        ":webdav:",
        path,
        "--webdav-url",
        url,
        "--config",
        "/dev/null",
        "--allow-other",
        "--cache-dir",
        join(directory, "rclone"),
        "--vfs-cache-mode",
        "full",
        "--vfs-read-chunk-size",
        "256k",
        "--vfs-read-chunk-size-limit",
        "4m",
        "--buffer-size",
        "0",
        "--dir-cache-time",
        "1h",
        "--attr-timeout",
        "1h",
        "--max-read-ahead",
        "128k",
      ],
      { stdio: ["ignore", "ignore", "pipe"] },
    );
    let said = "";
    rclone.stderr.on("data", (chunk: Buffer) => (said = (said + chunk.toString()).slice(-2000)));
    const deadline = Date.now() + mountDeadlineMs;
    while (!isMounted(path)) {
      if (rclone.exitCode !== null || Date.now() > deadline)
        throw new Error(`rclone did not mount ${url}: ${said}`);
      await sleep(50);
    }
    return new RemoteDirectory(path, rclone);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#rclone, "exit");
    await runProgram("umount", [this.path]);
    await ended;
  }
}
