/** A backend of its own instance and directories, sandboxes in it, and proof that nothing is left afterwards. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findStaticBusybox } from "../../../scripts/setup/find-command.mjs";
import type { RuntimeName } from "../../../src/backends/container/runc/runtime.ts";
import { RuncBackend } from "../../../src/backends/container/runc/runc-backend.ts";
import type { Limits, PreparedNetwork, PreparedRoot, Running } from "../../../src/backends/backend.ts";
import { detectCgroups } from "../../../src/backends/linux/cgroup-hierarchy.ts";
import { listMounts, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { mountOverlay } from "../../../src/backends/linux/overlay-mount.ts";

export const mebibyte = 1024 * 1024;

const applets = [
  "cat",
  "chmod",
  "cp",
  "dd",
  "df",
  "echo",
  "env",
  "head",
  "hostname",
  "id",
  "kill",
  "ln",
  "ls",
  "mkdir",
  "mkfifo",
];
const moreApplets = [
  "mount",
  "ps",
  "readlink",
  "rm",
  "sh",
  "sleep",
  "su",
  "tail",
  "test",
  "touch",
  "true",
  "wc",
  "whoami",
];

const limits: Limits = {
  memoryBytes: 64 * mebibyte,
  cpus: 1,
  cpuLimit: null,
  pids: 64,
  diskBytes: 1024 * mebibyte,
  class: "latency-sensitive",
};

export interface StartOptions {
  readonly id?: string;
  readonly root?: PreparedRoot;
  readonly network?: PreparedNetwork;
  readonly limits?: Partial<Limits>;
  readonly signal?: AbortSignal;
}

export interface Outcome {
  readonly code: number;
  readonly signal: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

export class SandboxFixture implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "dsec-runc-"));
  readonly instance = `dsec-test-${process.pid}`;
  readonly runDir = join(this.directory, "run");
  /** A directory with busybox and `attempt`, to be used as the lower layer. */
  readonly base = join(this.directory, "base");
  readonly #backends: RuncBackend[] = [];
  readonly #sandboxes: Running[] = [];
  readonly #runtime: RuntimeName | undefined;
  #made = 0;
  readonly backend: RuncBackend;

  /** @param runtime without it, the backend's choice */
  constructor(runtime?: RuntimeName) {
    this.#runtime = runtime;
    buildBase(this.base);
    this.backend = this.newBackend();
  }

  /** Another backend over the same directories: what a restarted daemon has. */
  newBackend(): RuncBackend {
    const backend = new RuncBackend({
      instance: this.instance,
      runDir: this.runDir,
      ...(this.#runtime !== undefined && { runtime: this.#runtime }),
    });
    this.#backends.push(backend);
    return backend;
  }

  /** A fresh id. */
  nextId(): string {
    this.#made += 1;
    const suffix = String(this.#made)
      .padStart(10, "a")
      .replaceAll(/\d/g, (digit) => "abcdefghij".charAt(Number(digit)));
    return `test-${suffix}`;
  }

  /** Mounts a writable root over the base, as the daemon does. */
  overlay(
    name: string,
    lower: readonly string[] = [this.base],
  ): { readonly path: string; readonly upper: string } {
    const folder = join(this.directory, "roots", name);
    const [path, upper, work] = ["root", "upper", "work"].map((part) => join(folder, part)) as [
      string,
      string,
      string,
    ];
    for (const part of [path, upper, work]) mkdirSync(part, { recursive: true });
    mountOverlay({ lower, upper, work }, path);
    return { path, upper };
  }

  /** Starts a sandbox on an overlay that is unmounted here as soon as it runs. */
  async start(options: StartOptions = {}): Promise<Running> {
    const id = options.id ?? this.nextId();
    const root: PreparedRoot = options.root ?? { type: "directory", path: this.overlay(id).path };
    try {
      const running = await this.backend.start(
        {
          id,
          hostname: "box",
          env: {},
          root,
          limits: { ...limits, ...options.limits },
          ...(options.network !== undefined && { network: options.network }),
        },
        options.signal ?? AbortSignal.timeout(30_000),
      );
      this.#sandboxes.push(running);
      return running;
    } finally {
      if (root.type === "directory") unmountIfMounted(root.path);
    }
  }

  /** What of a sandbox can be found on the machine: mounts, control groups, the runtime's state, files. */
  traces(id: string): string[] {
    const directory = join(this.runDir, "sandboxes", id);
    const mounts = listMounts().filter(({ target }) => target.includes(id));
    return [
      ...(existsSync(directory) ? [directory] : []),
      ...mounts.map(({ target }) => target),
      ...detectCgroups().cgroup(`/${this.instance}/${id}`).directories(),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const sandbox of this.#sandboxes) await sandbox.destroy();
    await this.backend.sweep(new Set(), AbortSignal.timeout(30_000));
    for (const backend of this.#backends) await backend.close();
    for (const { target } of listMounts()) if (target.startsWith(this.directory)) unmountIfMounted(target);
    rmSync(this.directory, { recursive: true });
  }
}

/** Runs a command inside and collects what it says. */
export async function runInside(
  sandbox: Running,
  argv: readonly string[],
  options: { user?: string; timeoutMs?: number } = {},
): Promise<Outcome> {
  const output = { stdout: "", stderr: "" };
  const exec = await sandbox.guest.exec(
    { argv, env: {}, stdin: false, ...options },
    (stream, _offset, chunk) => {
      output[stream] += chunk.toString();
    },
  );
  const exit = await exec.exit;
  exec.release();
  return { code: exit.code, signal: exit.signal, ...output };
}

/** The same for a line of shell; its output without the last newline. */
export async function shell(sandbox: Running, script: string): Promise<string> {
  const { stdout, stderr } = await runInside(sandbox, ["/bin/sh", "-c", script]);
  return (stdout + stderr).trimEnd();
}

/** Tries one thing as root; `ok` or the errno's name. */
export async function attempt(sandbox: Running, ...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runInside(sandbox, ["/bin/attempt", ...argv]);
  return code === 0 ? stdout.trim() : `exit ${code} ${stderr}`;
}

/** The agent's process on the host. */
export function agentPid(sandbox: Running): number {
  const { record } = sandbox;
  if (record === null || typeof record !== "object" || !("pid" in record))
    throw new Error("the record has no pid");
  return Number(record.pid);
}

function buildBase(base: string): void {
  const busybox = findStaticBusybox();
  if (busybox === undefined) throw new Error("no static busybox here: npm run setup -- --tests installs it");
  for (const folder of ["bin", "dev", "etc", "proc", "root", "sys", "tmp"])
    mkdirSync(join(base, folder), { recursive: true });
  chmodSync(join(base, "tmp"), 0o1777);
  copyFileSync(busybox, join(base, "bin/busybox"));
  copyFileSync(busybox, join(base, "bin/setuid-id"));
  chmodSync(join(base, "bin/setuid-id"), 0o4755);
  for (const applet of [...applets, ...moreApplets]) symlinkSync("busybox", join(base, "bin", applet));
  writeFileSync(join(base, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/:/bin/sh\n");
  writeFileSync(join(base, "etc/group"), "root:x:0:\nagent:x:1000:\n");
  const source = new URL("attempt.c", import.meta.url).pathname;
  execFileSync("musl-gcc", ["-static", "-O1", "-o", join(base, "bin/attempt"), source], { stdio: "pipe" });
}

/** Names of what a directory holds; none when it is not there. */
export function namesIn(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory) : [];
}
