import { randomBytes } from "node:crypto";
import { homedir } from "node:os";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { type Logger, pino } from "pino";
import { agentBinaryPath } from "../agent/agent-binary.ts";
import { createBackends } from "../backends/registry.ts";
import type { LocalServer } from "../wire/server/handover.ts";
import { WireServer } from "../wire/server/server.ts";
import { Audit } from "./audit/audit.ts";
import { type Clock, systemClock } from "./clock.ts";
import { assemble, type Daemon } from "./assembly.ts";
import { serveAudit } from "./http/audit-routes.ts";
import { serveFiles } from "./http/file-routes.ts";
import { serveHistory } from "./http/history-routes.ts";
import { serveNetworks } from "./http/network-routes.ts";
import { serveNode } from "./http/node-routes.ts";
import { servePorts } from "./http/port-routes.ts";
import { serveSandboxes } from "./http/sandbox-routes.ts";
import { serveSessions } from "./http/session-routes.ts";
import { Journal } from "./journal/journal.ts";
import { readCaBundle } from "./network/authorities/ca-bundle.ts";
import { SandboxTrust } from "./network/authorities/sandbox-trust.ts";
import { AddressRange } from "./network/address-range.ts";
import type { NodeConfiguration } from "./network/registries/configured-mirror.ts";
import { forwardingFindings } from "./network/forwarding.ts";
import { trackingFindings } from "./network/tracking.ts";
import { NodeRegistries } from "./network/registries/node-registries.ts";
import { LinkProvisioner } from "./link-provisioner.ts";
import { LocalProvisioner } from "./local-provisioner.ts";
import { protectedRanges } from "./network/policy/protected-ranges.ts";
import { type DaemonOptions, type DaemonOptionsInput, parseDaemonOptions } from "./options.ts";
import { loadSandboxes } from "./lifecycle/recovery.ts";
import { Registration } from "./registration.ts";
import { lockRunDir } from "./run-lock.ts";
import { shutDown } from "./shutdown.ts";
import { shortcomingOf } from "./views/shortcoming.ts";

/** What a test or an embedder may pass in. */
export interface DaemonParts {
  readonly clock?: Clock;
  /** In [0, 1). */
  readonly random?: () => number;
  readonly log?: Logger;
  /** Where package managers have their configuration. */
  readonly node?: NodeConfiguration;
}

export interface RunningDaemon {
  readonly name: string;
  /** Where it listens, as a client would give it. */
  readonly address: string;
  /** For a coordinator in the same process. */
  readonly server: LocalServer;
  /** Resolves when every sandbox of the journal was taken up again or reported lost. */
  readonly recovered: Promise<void>;
  /** What keeps containers from working here, as a sentence; undefined where they work, or are not wanted. */
  readonly shortcoming: Promise<string | undefined>;
  /** Ends the daemon. Its sandboxes go on, to be taken up by the next one, unless they are to be stopped. Idempotent. */
  close(options?: { readonly stopSandboxes?: boolean }): Promise<void>;
}

/**
 * Starts the daemon of this node: listens first, takes up the sandboxes of its journal behind.
 * @throws DSecError `config_invalid`, `already_running`, `journal_corrupt`, `address_in_use`, `permission_denied`, `audit_unavailable`,
 * `layer_store_unavailable` when its directory is not there and no sandbox is on record
 */
export async function startDaemon(
  input: DaemonOptionsInput,
  parts: DaemonParts = {},
): Promise<RunningDaemon> {
  const options = parseDaemonOptions(input);
  const log =
    parts.log ?? pino({ level: options.logLevel, base: { node: options.name } }, pino.destination(2));
  const undo: (() => void | Promise<void>)[] = [];
  try {
    undo.push(lockRunDir(options.runDir));
    const journal = new Journal(join(options.dataDir, "daemon", "journal.sqlite"));
    undo.push(() => journal.close());
    const audit = options.audit ? await openAudit(parts, log) : undefined;
    undo.push(async () => audit?.close());
    const provisioner = await openProvisioner(options, log);
    undo.push(async () => provisioner?.close());
    const authorities = options.caBundle === undefined ? undefined : await readCaBundle(options.caBundle);
    const registries = await openRegistries(options, parts.node, authorities);
    undo.push(async () => registries.close());
    if (provisioner !== undefined)
      await registries.serveCutoffs(AddressRange.parse(options.networkRange).gateway);
    const { backends, broken } = await createBackends({
      instance: options.instance,
      runDir: options.runDir,
      only: options.backends,
      agentPath: agentBinaryPath(),
      ...(options.dockerSocket === undefined ? {} : { dockerSocket: options.dockerSocket }),
    });
    undo.push(...backends.map((backend) => async () => backend.close()));
    const daemon = assemble({
      options,
      clock: parts.clock ?? systemClock,
      random: parts.random ?? Math.random,
      boot: randomBytes(6).toString("hex"),
      newId: () => randomBytes(8).toString("hex"),
      log,
      journal,
      backends,
      unusable: broken,
      provisioner,
      findings: () => [
        ...(provisioner?.report() ?? []),
        ...registries.findings,
        ...(provisioner?.policies === undefined
          ? []
          : [...forwardingFindings(), ...trackingFindings(options.maxFlows)]),
      ],
      registries: () => registries.view(),
      registryTable: () => registries.table,
      registryHomes: () => registries.homes,
      protectedRanges: protectedRanges(ownAddresses(), [options.networkRange]),
      datapath: provisioner?.policies,
      trust: authorities && new SandboxTrust(authorities),
      audit,
      pools: () => provisioner?.pools() ?? {},
    });
    undo.push(() => daemon.dispose());
    undo.push(registries.onChange(() => daemon.enforcement.registriesChanged()));
    const recover = loadSandboxes(daemon);
    // Sandboxes of before need their daemon, whatever has become of the store; without any it is better said at once.
    if (daemon.sandboxes.size === 0 && provisioner?.missingStore !== undefined)
      throw provisioner.missingStore;
    const server = serve(daemon, options, log);
    undo.push(async () => server.close());
    const address = await server.listen(options.listen, options.tls);
    log.info({ address, sandboxes: daemon.sandboxes.size }, "listening");
    const recovered = recover().then(() => {
      daemon.recovered();
      log.info("recovered");
      void daemon.sweep.run();
      try {
        daemon.policyBook.prune();
      } catch (error) {
        log.warn({ err: error }, "policies that no sandbox has could not be forgotten");
      }
    });
    const shortcoming = daemon.status.reports().then((reports) => {
      const found = shortcomingOf(reports);
      if (found !== undefined) log.warn(found);
      return found;
    });
    const registration = register(daemon, options, address, log);
    let closing: Promise<void> | undefined;
    const close = async (stopSandboxes: boolean): Promise<void> => {
      registration?.close();
      await Promise.all([recovered, shortcoming]);
      undo.push(async () => shutDown(daemon, server, stopSandboxes));
      await undoAll(undo);
      log.info("closed");
    };
    return {
      name: options.name,
      address,
      server,
      recovered,
      shortcoming,
      close: async (how) => (closing ??= close(how?.stopSandboxes ?? false)),
    };
  } catch (error) {
    await undoAll(undo).catch((cause: unknown) => {
      log.warn({ err: cause }, "not all of a start that failed could be undone");
    });
    throw error;
  }
}

/** The last first, each whatever becomes of the others. @throws the first failure */
async function undoAll(steps: readonly (() => void | Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const step of steps.toReversed()) {
    try {
      await step();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

function openAudit(parts: DaemonParts, log: Logger): Promise<Audit> {
  return Audit.open({
    clock: parts.clock ?? systemClock,
    random: parts.random ?? Math.random,
    interrupted: (err) => log.error({ err }, "the audit of sandboxes is interrupted"),
  });
}

/** Of this machine, on all its links. */
function ownAddresses(): string[] {
  const links = Object.values(networkInterfaces());
  return links.flatMap((list) => (list ?? []).map(({ address }) => address));
}

/** Undefined where no backend needs anything of the node. */
async function openProvisioner(
  options: DaemonOptions,
  log: Logger,
): Promise<LocalProvisioner | LinkProvisioner | undefined> {
  const interrupted = (err: Error): void =>
    log.error({ err }, "the way of sandboxes to the network is interrupted");
  if (options.backends.includes("runc")) return LocalProvisioner.open({ ...options, interrupted });
  return options.backends.includes("docker") ? LinkProvisioner.open({ ...options, interrupted }) : undefined;
}

function openRegistries(
  options: DaemonOptions,
  node: NodeConfiguration | undefined,
  authorities: readonly string[] | undefined,
): Promise<NodeRegistries> {
  return NodeRegistries.open({
    dataDir: options.dataDir,
    file: options.registries?.file,
    fileRequired: options.registries?.optional === false,
    node: node ?? { environment: process.env, home: homedir(), root: "/" },
    ca: authorities?.join(""),
    now: () => Date.now(),
  });
}

function serve(daemon: Daemon, options: DaemonOptions, log: Logger): WireServer {
  const server = new WireServer({ role: "daemon", version: daemon.version, token: options.token, log });
  serveSandboxes(server, daemon);
  serveHistory(server, daemon);
  serveSessions(server, daemon);
  serveFiles(server, daemon);
  serveNetworks(server, daemon);
  serveAudit(server, daemon);
  servePorts(server, daemon);
  serveNode(server, daemon);
  return server;
}

function register(
  daemon: Daemon,
  options: DaemonOptions,
  address: string,
  log: Logger,
): Registration | undefined {
  if (options.coordinator === undefined) return undefined;
  const { advertise, ...coordinator } = options.coordinator;
  const registration = new Registration({
    coordinator,
    node: { name: options.name, address: advertise ?? address, token: options.token },
    clock: daemon.clock,
    random: daemon.random,
    log,
  });
  void registration.start();
  return registration;
}
