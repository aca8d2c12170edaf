import type { Duplex } from "node:stream";
import type { Guest, GuestExec, GuestExecSpec, LiveExec, OutputSink } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import { findProgram } from "./programs.ts";
import { SimulatedFiles } from "./simulated-files.ts";
import { SimulatedProcess } from "./simulated-process.ts";
import type { Timers } from "./timers.ts";

interface Account {
  readonly id: number;
  readonly home: string;
}

const accounts: Readonly<Record<string, Account>> = {
  root: { id: 0, home: "/root" },
  nobody: { id: 65_534, home: "/" },
};
const groups: Readonly<Record<string, number>> = { root: 0, nogroup: 65_534 };
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export interface SimulatedGuestOptions {
  readonly hostname: string;
  /** Bytes its files may have together. */
  readonly diskBytes: number;
  readonly timers: Timers;
}

/** The inside of a simulated sandbox: programs.ts for its commands, files in memory, no network. */
export class SimulatedGuest implements Guest {
  readonly live: readonly LiveExec[] = [];
  readonly closed: Promise<void>;
  readonly #options: SimulatedGuestOptions;
  readonly #processes = new Map<number, SimulatedProcess>();
  readonly #closing = Promise.withResolvers<void>();
  #open = true;
  #channels = 0;
  #files: SimulatedFiles | undefined;

  constructor(options: SimulatedGuestOptions) {
    this.#options = options;
    this.closed = this.#closing.promise;
  }

  get files(): SimulatedFiles {
    this.#files ??= new SimulatedFiles(this.#options.diskBytes, this.#options.timers);
    return this.#files;
  }

  /** Processes that run now. */
  get running(): number {
    return this.#processes.size;
  }

  /** Bytes in its files. */
  get diskBytes(): number {
    return this.#files?.usedBytes ?? 0;
  }

  async exec(spec: GuestExecSpec, sink: OutputSink): Promise<GuestExec> {
    this.#assertOpen();
    const [command, ...args] = spec.argv;
    if (command === undefined) throw new DSecError("invalid_argument", "argv is empty");
    const user = lookUpUser(spec.user ?? "root");
    const cwd = spec.cwd ?? "/";
    if (!this.files.isDirectory(cwd)) {
      throw new DSecError("no_such_cwd", `working directory ${cwd} does not exist`, { details: { cwd } });
    }
    const program = findProgram(command);
    if (program === undefined) {
      throw new DSecError("command_not_found", `${command}: command not found`, { details: { command } });
    }
    this.#channels += 1;
    const process = new SimulatedProcess(
      {
        channel: this.#channels,
        pid: this.#channels + 1,
        program,
        args,
        env: { PATH: DEFAULT_PATH, HOME: user.home, USER: user.name, ...spec.env },
        cwd,
        uid: user.uid,
        gid: user.gid,
        hostname: this.#options.hostname,
        stdin: spec.stdin,
        tty: spec.tty !== undefined,
        timeoutMs: spec.timeoutMs ?? 0,
      },
      sink,
      this.#options.timers,
    );
    this.#processes.set(process.channel, process);
    const forget = (): void => {
      this.#processes.delete(process.channel);
    };
    process.exit.then(forget, forget);
    return process;
  }

  async resume(channel: number): Promise<GuestExec> {
    throw new DSecError(
      "not_found",
      `no exec ${channel}: simulated processes do not outlive their connection`,
    );
  }

  async dial(port: number, host = "127.0.0.1"): Promise<Duplex> {
    this.#assertOpen();
    throw new DSecError(
      "port_refused",
      `${host}:${port} refused the connection: nothing listens in a simulated sandbox`,
    );
  }

  async ping(): Promise<void> {
    this.#assertOpen();
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    for (const process of this.#processes.values()) process.lose(lost());
    this.#closing.resolve();
  }

  #assertOpen(): void {
    if (!this.#open) throw lost();
  }
}

function lost(): DSecError {
  return new DSecError("agent_lost", "the connection to the simulated sandbox is closed");
}

function lookUpUser(spec: string): { name: string; uid: number; gid: number; home: string } {
  const [userPart = "", groupPart] = spec.split(":");
  const account = Object.hasOwn(accounts, userPart) ? accounts[userPart] : undefined;
  const uid = account?.id ?? numericId(userPart);
  const gid =
    groupPart === undefined
      ? uid
      : ((Object.hasOwn(groups, groupPart) ? groups[groupPart] : undefined) ?? numericId(groupPart));
  if (uid === undefined || gid === undefined) {
    throw new DSecError("no_such_user", `no such user or group: ${spec}`, { details: { user: spec } });
  }
  return { name: userPart, uid, gid, home: account?.home ?? "/" };
}

function numericId(text: string): number | undefined {
  return /^\d{1,10}$/.test(text) ? Number(text) : undefined;
}
