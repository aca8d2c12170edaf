/** The other end of a slow link: a network namespace that is reached over one veth pair, shaped by tc. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { runProgram } from "../../../../src/daemon/resources/program.ts";

/** Ends a server with this process, however that ends. */
const withParent = ["--pdeathsig", "KILL"];
const serverDeadlineMs = 20_000;

/** Servers started in it share the link to this machine; it ends with them, and with the process that made it. */
export class ThrottledLink implements AsyncDisposable {
  /** Of the servers. */
  readonly address: string;
  /** As tc writes it, e.g. `400mbit`. */
  readonly rate: string;
  readonly #device: string;
  readonly #holder: ChildProcess;
  readonly #servers: ChildProcess[] = [];

  private constructor(address: string, rate: string, device: string, holder: ChildProcess) {
    this.address = address;
    this.rate = rate;
    this.#device = device;
    this.#holder = holder;
  }

  /** @param rate of what comes from the servers; what goes to them is small */
  static async open(rate: string): Promise<ThrottledLink> {
    // its stdin ends with this process
    const holder = spawn("unshare", ["--net", "sh", "-c", "echo made; read end"], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    await once(holder.stdout, "data");
    const device = `bench${randomBytes(3).toString("hex")}`;
    const network = `192.168.${randomInt(2, 250)}`;
    const link = new ThrottledLink(`${network}.2`, rate, device, holder);
    try {
      const pid = String(holder.pid);
      await runProgram("ip", ["link", "add", device, "type", "veth", "peer", "name", "up0", "netns", pid]);
      await runProgram("ip", ["address", "add", `${network}.1/30`, "dev", device]);
      await runProgram("ip", ["link", "set", device, "up"]);
      await link.#inside("ip", ["address", "add", `${network}.2/30`, "dev", "up0"]);
      await link.#inside("ip", ["link", "set", "lo", "up"]);
      await link.#inside("ip", ["link", "set", "up0", "up"]);
      const shaper = ["root", "tbf", "rate", rate, "burst", "512kb", "latency", "100ms"];
      await link.#inside("tc", ["qdisc", "add", "dev", "up0", ...shaper]);
    } catch (error) {
      await link[Symbol.asyncDispose]();
      throw error;
    }
    return link;
  }

  /** Bytes that have come over it, headers of Ethernet and IP included. */
  receivedBytes(): number {
    return Number(readFileSync(`/sys/class/net/${this.#device}/statistics/rx_bytes`, "utf8"));
  }

  /** Starts a server at the other end; resolves when it accepts connections at `port`. */
  async serve(port: number, command: string, args: readonly string[]): Promise<void> {
    const server = spawn("setpriv", [...withParent, "nsenter", this.#namespace(), command, ...args], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#servers.push(server);
    let said = "";
    server.stderr.on("data", (chunk: Buffer) => (said = (said + chunk.toString()).slice(-2000)));
    const deadline = Date.now() + serverDeadlineMs;
    while (!(await accepts(this.address, port))) {
      if (server.exitCode !== null || Date.now() > deadline)
        throw new Error(`${command} did not start: ${said}`);
      await sleep(50);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of [...this.#servers, this.#holder]) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
  }

  async #inside(command: string, args: readonly string[]): Promise<void> {
    await runProgram("nsenter", [this.#namespace(), command, ...args]);
  }

  #namespace(): string {
    return `--net=/proc/${this.#holder.pid}/ns/net`;
  }
}

async function accepts(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port });
  const { promise, resolve } = Promise.withResolvers<boolean>();
  socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
  const answer = await promise;
  socket.destroy();
  return answer;
}
