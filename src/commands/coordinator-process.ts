import { expectManyBuffers } from "./buffer-memory.ts";
import { join } from "node:path";
import type { Settings } from "../sdk/settings.ts";
import { packageVersion } from "./package-version.ts";
import { defined } from "./sandbox-options.ts";

type CoordinatorModule = typeof import("../scheduler/coordinator/coordinator.ts");

export interface CoordinatorStart {
  readonly settings: Settings;
  /** Beside the local socket. */
  readonly listen: readonly string[];
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
  /** Those that it knows from the start. */
  readonly nodes: Parameters<CoordinatorModule["startCoordinator"]>[0]["nodes"];
  readonly nodeCa?: string | undefined;
  readonly logLevel?: string | undefined;
  /** Called when a client has asked for the end. */
  readonly onShutdown: () => void;
}

/** Starts a coordinator in this process, always also on the local socket, and logging to stderr. */
export async function startCoordinatorHere(start: CoordinatorStart) {
  const { settings, listen, tls, nodes, nodeCa, logLevel = "info", onShutdown } = start;
  expectManyBuffers();
  const [{ pino }, { startCoordinator }] = await Promise.all([
    import("pino"),
    import("../scheduler/coordinator/coordinator.ts"),
  ]);
  return startCoordinator({
    dataDir: settings.dataDir,
    listen: [`unix:${join(settings.runDir, "coordinator.sock")}`, ...listen],
    nodes,
    version: await packageVersion(),
    log: pino({ level: logLevel, base: { role: "coordinator" } }, pino.destination(2)),
    onShutdown,
    ...defined({ tls, nodeCa }),
  });
}
