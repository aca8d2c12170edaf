import { mkdirSync, readFileSync, unwatchFile, watchFile, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { isErrno } from "../../../backends/linux/libc.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { BackendReport, RegistryView } from "../../../protocol/node.ts";
import type { RegistryEndpoints, RegistryTable } from "../policy/registry-table.ts";
import { aptMirror } from "./apt-mirror-setting.ts";
import { builtInRegistries } from "./built-in-registries.ts";
import type { NodeConfiguration } from "./configured-mirror.ts";
import { Mirrors } from "./cutoff/mirrors.ts";
import { npmMirror } from "./npm-mirror-setting.ts";
import { pipMirror } from "./pip-mirror-setting.ts";
import { type Registries, type Registry, standsFor } from "./registry.ts";
import { readRegistryFile } from "./registry-file.ts";
import type { RegistryHome } from "./package-manager-environment.ts";

type Finding = BackendReport["findings"][number];

export interface NodeRegistriesOptions {
  /** For files of registries, and what must not change between runs. */
  readonly dataDir: string;
  /** The operator's file. */
  readonly file: string | undefined;
  /** Whether the file must be there now. */
  readonly fileRequired: boolean;
  readonly node: NodeConfiguration;
  /** Certificates to trust beside Node's own, PEM. */
  readonly ca: string | undefined;
  /** Milliseconds. */
  readonly now: () => number;
}

/** Milliseconds between looks at the operator's file. */
const lookMs = 2000;
/** Milliseconds within which mirrors that were lost are not started a second time. */
const restMs = 60_000;

const Ports = z.record(z.string(), z.int().min(1).max(65_535));

const nowhere: RegistryEndpoints = { domains: [], cidrs: [], ports: [] };

/** What registries' names stand for on this node, and the mirrors of those with a cut-off. */
export class NodeRegistries {
  readonly #options: NodeRegistriesOptions;
  readonly #mirrors: Mirrors;
  readonly #portsFile: string;
  /** Called after the table has changed. */
  readonly #listeners = new Set<() => void>();
  #configured: Registries;
  /** Ports of the mirrors that are served, by name. */
  readonly #served = new Map<string, number>();
  readonly #findings = new Map<string, Finding>();
  #host: string | undefined;
  #lostAt = Number.NEGATIVE_INFINITY;
  #working: Promise<unknown> = Promise.resolve();

  private constructor(options: NodeRegistriesOptions, configured: Registries) {
    this.#options = options;
    this.#configured = configured;
    this.#portsFile = join(options.dataDir, "daemon", "registry-ports.json");
    this.#mirrors = new Mirrors((error) => this.#mirrorsLost(error));
    if (options.file !== undefined)
      watchFile(options.file, { interval: lookMs, persistent: false }, this.#reload);
  }

  /** @throws DSecError `config_invalid` naming the place in the operator's file */
  static async open(options: NodeRegistriesOptions): Promise<NodeRegistries> {
    return new NodeRegistries(options, await configure(options, options.fileRequired));
  }

  /** What a policy's names come to. One with a cut-off is its mirror and nothing else; where that cannot be served, nothing at all. */
  get table(): RegistryTable {
    return new Map(
      [...this.#configured].map(([name, registry]) => [name, this.#endpointsOf(name, registry)]),
    );
  }

  /** What does not hold, and what mends it. */
  get findings(): readonly Finding[] {
    const local = [...this.#configured].filter(([, registry]) => isLocal(registry));
    return [
      ...this.#findings.values(),
      ...local.map(([name]): Finding => ({
        level: "warning",
        message: `${name} stands for a mirror on the node's loopback, where no sandbox reaches it`,
        fix: `give ${name} an address that sandboxes reach, or a cutoff: the daemon then serves it`,
      })),
    ];
  }

  /** As operators see it. */
  view(): RegistryView[] {
    return [...this.#configured]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, registry]) => {
        const { domains, cidrs, ports } = this.#endpointsOf(name, registry);
        const { source, upstream, cutoff } = registry;
        return {
          name,
          domains: [...domains],
          cidrs: [...cidrs],
          ports: [...ports],
          source,
          ...(upstream !== undefined && { upstream: withoutUser(upstream) }),
          ...(cutoff !== undefined && { cutoff }),
        };
      });
  }

  /** Registries that are not where package managers look by themselves. */
  get homes(): readonly RegistryHome[] {
    return [...this.#configured].flatMap(([name, registry]) => {
      const { upstream, cutoff, source } = registry;
      if (cutoff !== undefined) {
        const port = this.#served.get(name);
        const path = name === "pypi" ? "simple/" : "";
        return port === undefined ? [] : [{ name, url: `http://${this.#host ?? ""}:${port}/${path}` }];
      }
      if (source === "built-in" || upstream === undefined || isLocal(registry)) return [];
      // The operator may have named other hosts and no URL.
      return standsFor(registry, new URL(upstream).hostname) ? [{ name, url: withoutUser(upstream) }] : [];
    });
  }

  /** Serves the registries with a cut-off to sandboxes, now and after every change of the operator's file. */
  async serveCutoffs(host: string): Promise<void> {
    this.#host = host;
    await this.#serveAll();
  }

  /** @returns what ends it */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(): Promise<void> {
    if (this.#options.file !== undefined) unwatchFile(this.#options.file, this.#reload);
    await this.#working;
    await this.#mirrors.close();
  }

  readonly #reload = (): void => {
    this.#enqueue(async () => {
      try {
        this.#configured = await configure(this.#options, false);
        this.#findings.delete("file");
      } catch (error) {
        // What held before goes on.
        this.#findings.set("file", { level: "warning", message: sentence(error) });
        return;
      }
      await this.#serveAll();
    });
  };

  #endpointsOf(name: string, registry: Registry): RegistryEndpoints {
    if (registry.cutoff === undefined) return registry;
    const port = this.#served.get(name);
    if (port === undefined || this.#host === undefined) return nowhere;
    return { domains: [], cidrs: [this.#host], ports: [port] };
  }

  async #serveAll(): Promise<void> {
    const host = this.#host;
    if (host === undefined) return;
    const ports = this.#readPorts();
    for (const name of this.#served.keys()) {
      if (this.#configured.get(name)?.cutoff !== undefined) continue;
      await this.#mirrors.end(name);
      this.#served.delete(name);
    }
    for (const [name, { upstream, cutoff, domains }] of this.#configured) {
      if (upstream === undefined || cutoff === undefined) continue;
      try {
        // Sandboxes that run know the port it had.
        const port = await this.#mirrors.serve({
          name,
          upstream,
          domains,
          cutoff,
          host,
          port: ports[name] ?? 0,
          cacheDir: join(this.#options.dataDir, "registries"),
          ca: this.#options.ca,
        });
        this.#served.set(name, port);
        this.#findings.delete(name);
        ports[name] = port;
      } catch (error) {
        this.#served.delete(name);
        this.#findings.set(name, { level: "warning", message: sentence(error) });
      }
    }
    if (this.#served.size > 0) writeFileSync(this.#portsFile, JSON.stringify(ports), { mode: 0o600 });
  }

  /** They are started again, but not over and over. */
  #mirrorsLost(error: Error): void {
    const now = this.#options.now();
    const again = now - this.#lostAt > restMs;
    this.#lostAt = now;
    const message = `its cut-off is served no more: ${error.message}`;
    for (const name of this.#served.keys())
      this.#findings.set(name, {
        level: "warning",
        message: `${name}: ${message}`,
        fix: "restart the daemon",
      });
    this.#served.clear();
    this.#changed();
    if (again) this.#enqueue(() => this.#serveAll());
  }

  #enqueue(work: () => Promise<void>): void {
    this.#working = this.#working.then(work).then(
      () => this.#changed(),
      (error: unknown) => this.#findings.set("registries", { level: "warning", message: sentence(error) }),
    );
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  #readPorts(): z.infer<typeof Ports> {
    mkdirSync(join(this.#options.dataDir, "daemon"), { recursive: true });
    try {
      return Ports.parse(JSON.parse(readFileSync(this.#portsFile, "utf8")));
    } catch (error) {
      // A file that was cut short costs running sandboxes their address, nothing else.
      if (isErrno(error, "ENOENT") || error instanceof SyntaxError || error instanceof z.ZodError) return {};
      throw error;
    }
  }
}

/** Built in, then the node's own package managers, then the operator. */
async function configure({ node, file }: NodeRegistriesOptions, required: boolean): Promise<Registries> {
  const table = new Map(builtInRegistries);
  const [npm, pypi] = [table.get("npm"), table.get("pypi")];
  const npmFound = npm && (await npmMirror(node, npm));
  if (npmFound !== undefined) table.set("npm", npmFound);
  const pypiFound = pypi && (await pipMirror(node, pypi));
  if (pypiFound !== undefined) table.set("pypi", pypiFound);
  const apt = await aptMirror(node, table);
  if (apt !== undefined) table.set(...apt);
  if (file === undefined) return table;
  const read = await readRegistryFile(file, table);
  if (read === undefined && required) throw new DSecError("config_invalid", `${file} is not there`);
  return read ?? table;
}

/** Whether it is the node's own loopback, which in a sandbox is the sandbox's. */
function isLocal({ domains, cidrs, cutoff }: Registry): boolean {
  if (cutoff !== undefined) return false;
  return domains.includes("localhost") || cidrs.some((cidr) => /^(?:127\.|::1(?:\/|$))/.test(cidr));
}

/** Passwords of a mirror are the node's own. */
function withoutUser(text: string): string {
  const url = new URL(text);
  url.username = "";
  url.password = "";
  return url.href;
}

function sentence(error: unknown): string {
  const parts: string[] = [];
  for (let part: unknown = error; part instanceof Error; part = part.cause) parts.push(part.message);
  return parts.join(": ");
}
