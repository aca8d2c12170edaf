import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { output } from "../temporary-node.ts";
import type { InternetMessage, InternetRequest, Seen, Zone } from "./internet-servers.ts";

/** Names that the test CA vouches for. */
const certified = ["*.example.test", "example.test", "*.evil.test", "evil.test", "*.mirror.test"];
const servers = fileURLToPath(new URL("./internet-servers.ts", import.meta.url));

/**
 * A small internet: a network namespace with addresses of its own, of which each serves HTTP (80), HTTPS (443, by a
 * CA of the test), TCP and UDP echo (7), UDP (443) and DNS (53, UDP and TCP). Whatever its servers get is written down.
 */
export class Internet implements AsyncDisposable {
  /** PEM file of the CA. */
  readonly caFile: string;
  readonly #directory: string;
  readonly #prefix: string;
  readonly #link: string;
  readonly #child: ChildProcess;
  readonly #seen: Seen[] = [];

  private constructor(directory: string, prefix: string, link: string, child: ChildProcess) {
    this.#directory = directory;
    this.#prefix = prefix;
    this.#link = link;
    this.#child = child;
    this.caFile = join(directory, "ca.pem");
    child.on("message", (message: InternetMessage) => {
      if (message.type === "seen") this.#seen.push(message.seen);
    });
  }

  /** Its DNS answers from `zone`; each address of the zone and those named in `addresses` has servers. */
  static async start(): Promise<Internet> {
    const directory = await mkdtemp(join(tmpdir(), "dsec-internet-"));
    const link = `i${randomBytes(4).toString("hex")}`;
    // Addresses for measurements: nobody has them.
    const prefix = `198.${randomInt(18, 20)}.${randomInt(256)}`;
    try {
      await certify(directory);
      const child = spawn(
        "unshare",
        ["--net", process.execPath, servers, prefix, ipv6Network(prefix), directory],
        {
          stdio: ["ignore", "inherit", "inherit", "ipc"],
        },
      );
      const internet = new Internet(directory, prefix, link, child);
      // The namespace is there when its process speaks.
      await once(child, "message");
      await output(
        "ip",
        "link",
        "add",
        link,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        String(child.pid),
      );
      await output("ip", "address", "add", `${prefix}.254/32`, "dev", link);
      await output("ip", "link", "set", link, "up");
      await output("ip", "route", "add", `${prefix}.0/24`, "dev", link, "src", `${prefix}.254`);
      await output("ip", "-6", "address", "add", `${ipv6Network(prefix)}::fe/120`, "dev", link, "nodad");
      // Answers to what sandboxes send come in here.
      writeFileSync(`/proc/sys/net/ipv4/conf/${link}/forwarding`, "1");
      const ready = internet.#next("ready");
      internet.#tell({ type: "configure" });
      await ready;
      return internet;
    } catch (error) {
      await rm(directory, { recursive: true, force: true });
      throw error;
    }
  }

  /** The address of the server of that number, 1 to 9. */
  address(number: number): string {
    return `${this.#prefix}.${number}`;
  }

  /** Another address of the same server. */
  ipv6Address(number: number): string {
    return `${ipv6Network(this.#prefix)}::${number}`;
  }

  /** What a server answers to the node itself, on its echo port. */
  async answersNode(host: string, text: string): Promise<string> {
    const socket = connect(7, host);
    socket.end(text);
    const pieces: Buffer[] = [];
    for await (const piece of socket) pieces.push(Buffer.from(piece));
    return Buffer.concat(pieces).toString();
  }

  /** Of its namespace, for further servers. */
  get netnsPath(): string {
    return `/proc/${this.#child.pid}/ns/net`;
  }

  /** IPv4 packets that came into its namespace so far. */
  get received(): number {
    const text = readFileSync(`/proc/${this.#child.pid}/net/snmp`, "utf8");
    const [names = "", values = ""] = text.split("\n").filter((line) => line.startsWith("Ip: "));
    return Number(values.split(" ")[names.split(" ").indexOf("InReceives")]);
  }

  /** All of its addresses. */
  get network(): string {
    return `${this.#prefix}.0/24`;
  }

  /** Its name server, which knows what {@link setZone} says. */
  get nameServer(): { address: string; port: number } {
    return { address: this.address(9), port: 53 };
  }

  get caCertificate(): string {
    return readFileSync(this.caFile, "utf8");
  }

  /** What its name servers answer, by name: numbers of servers, or addresses. */
  async setZone(zone: Readonly<Record<string, readonly (number | string)[]>>, ttl = 60): Promise<void> {
    const entries = Object.entries(zone).map(([name, hosts]): [string, Zone[string]] => [
      name,
      { ttl, addresses: hosts.map((host) => (typeof host === "number" ? this.address(host) : host)) },
    ]);
    const ready = this.#next("ready");
    this.#tell({ type: "zone", zone: Object.fromEntries(entries) });
    await ready;
  }

  /** What the servers have got so far, of one kind. */
  seen(kind: Seen["kind"]): Seen[] {
    return this.#seen.filter((seen) => seen.kind === kind);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#child, "close");
    this.#child.kill("SIGKILL");
    await closed;
    // The link goes with the namespace, a moment later.
    await output("ip", "link", "delete", this.#link).catch(() => undefined);
    await rm(this.#directory, { recursive: true, force: true });
  }

  #tell(request: InternetRequest): void {
    this.#child.send(request);
  }

  async #next(type: InternetMessage["type"]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const take = (message: InternetMessage) => {
      if (message.type === type) resolve();
    };
    const fail = () => reject(new Error("the servers of the small internet have ended"));
    this.#child.on("message", take).once("exit", fail);
    try {
      await promise;
    } finally {
      this.#child.off("message", take).off("exit", fail);
    }
  }
}

/** A unique local network for each IPv4 one. */
function ipv6Network(prefix: string): string {
  const [, second, third] = prefix.split(".").map(Number);
  return `fd98:${second?.toString(16)}:${third?.toString(16)}`;
}

async function certify(directory: string): Promise<void> {
  const path = (name: string) => join(directory, name);
  const request = ["req", "-x509", "-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt"];
  const curve = "ec_paramgen_curve:prime256v1";
  const files = (name: string) => ["-keyout", path(`${name}.key`), "-out", path(`${name}.pem`)];
  await output("openssl", ...request, curve, "-subj", "/CN=test CA", ...files("ca"));
  const signed = ["-CA", path("ca.pem"), "-CAkey", path("ca.key"), "-subj", "/CN=servers"];
  const names = `subjectAltName=${certified.map((name) => `DNS:${name}`).join(",")}`;
  const extensions = ["-addext", names, "-addext", "basicConstraints=critical,CA:false"];
  await output("openssl", ...request, curve, ...signed, ...extensions, ...files("server"));
}
