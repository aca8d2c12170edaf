/**
 * The route table: every path of the HTTP interface once. `:name` are parameters. Served by the coordinator, the daemon,
 * or both: the coordinator answers `both` routes by forwarding to the sandbox's node, or by asking every node.
 * No zod here: the CLI's start must not pay for it.
 */
export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly served: "coordinator" | "daemon" | "both";
  /** The request is answered by an upgrade: to WebSocket, or to a tunnel. */
  readonly upgrade?: true;
  /** Everything below the path, whatever the method, upgrades too. */
  readonly below?: true;
}

const define = <T extends Record<string, Route>>(routes: T): T => routes;

export const routes = define({
  /** → ServerVersion; needs no token. */
  version: { method: "GET", path: "/v1/version", served: "both" },
  /** → text/plain, Prometheus. */
  metrics: { method: "GET", path: "/metrics", served: "both" },
  /** SandboxSpec, header `idempotency-key` → 201 Sandbox, running. */
  createSandbox: { method: "POST", path: "/v1/sandboxes", served: "coordinator" },
  /** Placement → 201 Sandbox, running; the same id again → the same sandbox. */
  placeSandbox: { method: "PUT", path: "/v1/sandboxes/:id", served: "daemon" },
  /** query SandboxFilter + limit, cursor, usage → SandboxList. */
  listSandboxes: { method: "GET", path: "/v1/sandboxes", served: "both" },
  /** → Sandbox with usage. */
  getSandbox: { method: "GET", path: "/v1/sandboxes/:ref", served: "both" },
  /** SandboxUpdate → Sandbox. */
  updateSandbox: { method: "PATCH", path: "/v1/sandboxes/:ref", served: "both" },
  /** Ends it if need be, then forgets record and logs → 204. */
  removeSandbox: { method: "DELETE", path: "/v1/sandboxes/:ref", served: "both" },
  /** StopRequest → Sandbox, ended. Idempotent. */
  stopSandbox: { method: "POST", path: "/v1/sandboxes/:ref/stop", served: "both" },
  /** TouchRequest → Sandbox. */
  touchSandbox: { method: "POST", path: "/v1/sandboxes/:ref/touch", served: "both" },
  /** query timeoutMs (≤ 60,000) → Sandbox: ended, or as it is when the time is up. */
  waitSandbox: { method: "GET", path: "/v1/sandboxes/:ref/wait", served: "both" },
  /** → {items: SandboxEvent[]}. */
  listEvents: { method: "GET", path: "/v1/sandboxes/:ref/events", served: "both" },
  /** → ExecList. */
  listExecs: { method: "GET", path: "/v1/sandboxes/:ref/execs", served: "both" },
  /** → SessionList. */
  listSessions: { method: "GET", path: "/v1/sandboxes/:ref/sessions", served: "both" },
  /** Kills every process of the session → 204. */
  endSession: { method: "DELETE", path: "/v1/sandboxes/:ref/sessions/:name", served: "both" },
  /** query exec (default: the one the sandbox ends with, else the newest recorded), follow, tail (lines), since (ms) → NDJSON LogLine. */
  logs: { method: "GET", path: "/v1/sandboxes/:ref/logs", served: "both" },
  /** WebSocket, see exec.ts. */
  exec: { method: "GET", path: "/v1/sandboxes/:ref/exec", served: "both", upgrade: true },
  /** WebSocket to a recorded exec, see exec.ts. */
  attach: { method: "GET", path: "/v1/sandboxes/:ref/execs/:exec/attach", served: "both", upgrade: true },
  /** Tunnel to a TCP port of the sandbox, see tunnel.ts. */
  port: { method: "GET", path: "/v1/sandboxes/:ref/ports/:port", served: "both", upgrade: true },
  /** HTTP to a port of the sandbox; the fleet's token or one of {@link createPortToken}. */
  http: { method: "GET", path: "/v1/sandboxes/:ref/http/:port", served: "coordinator", below: true },
  /** PortTokenRequest → 201 PortToken. */
  createPortToken: { method: "POST", path: "/v1/sandboxes/:ref/tokens", served: "coordinator" },
  /** query FileReadQuery → bytes; header x-dsec-file: FileInfo. */
  readFile: { method: "GET", path: "/v1/sandboxes/:ref/files", served: "both" },
  /** query FileWriteQuery, bytes, optional trailer x-dsec-crc32 or x-dsec-sha256 → FileWritten. */
  writeFile: { method: "PUT", path: "/v1/sandboxes/:ref/files", served: "both" },
  /** query FileStatQuery → FileInfo. */
  statFile: { method: "GET", path: "/v1/sandboxes/:ref/files/stat", served: "both" },
  /** query FileListQuery → FileList. */
  listFiles: { method: "GET", path: "/v1/sandboxes/:ref/files/list", served: "both" },
  /** DirectoryRequest → 204. */
  makeDirectory: { method: "POST", path: "/v1/sandboxes/:ref/files/mkdir", served: "both" },
  /** FileRemoval → 204. */
  removeFile: { method: "POST", path: "/v1/sandboxes/:ref/files/remove", served: "both" },
  /** FileRename → 204. */
  renameFile: { method: "POST", path: "/v1/sandboxes/:ref/files/rename", served: "both" },
  /** query ArchiveReadQuery → tar; trailer x-dsec-archive: ArchiveResult. */
  readArchive: { method: "GET", path: "/v1/sandboxes/:ref/archive", served: "both" },
  /** query ArchiveWriteQuery, tar, optional trailer x-dsec-crc32 or x-dsec-sha256 → ArchiveResult. */
  writeArchive: { method: "PUT", path: "/v1/sandboxes/:ref/archive", served: "both" },
  /** → SandboxPolicy: what is in force. */
  getSandboxPolicy: { method: "GET", path: "/v1/sandboxes/:ref/network/policy", served: "both" },
  /** PolicyReplacement → PolicyChange. */
  setSandboxPolicy: { method: "PUT", path: "/v1/sandboxes/:ref/network/policy", served: "coordinator" },
  /** NetworkProbe → NetworkProbeResult. */
  testNetwork: { method: "POST", path: "/v1/sandboxes/:ref/network/test", served: "both" },
  /** query since (ms), follow → NDJSON NetworkDecision. */
  networkLog: { method: "GET", path: "/v1/sandboxes/:ref/network/log", served: "both" },
  /** query since (ms), follow → NDJSON AuditEvent. */
  audit: { method: "GET", path: "/v1/sandboxes/:ref/audit", served: "both" },
  /** PolicyApplication → PolicyPushResult. */
  applyPolicy: { method: "POST", path: "/v1/network-policy", served: "daemon" },
  /** → NamedPolicyList: the newest version of each. */
  listPolicies: { method: "GET", path: "/v1/network-policies", served: "coordinator" },
  /** query version → NamedPolicy. */
  getPolicy: { method: "GET", path: "/v1/network-policies/:name", served: "coordinator" },
  /** → NamedPolicyList: every version, the newest first. */
  listPolicyVersions: { method: "GET", path: "/v1/network-policies/:name/versions", served: "coordinator" },
  /** PolicyEdition → NamedPolicy: a version more, unless the newest says the same. */
  setPolicy: { method: "PUT", path: "/v1/network-policies/:name", served: "coordinator" },
  /** query version (default: all of them) → 204. Sandboxes that have it keep it. */
  removePolicy: { method: "DELETE", path: "/v1/network-policies/:name", served: "coordinator" },
  /** PolicyPush → PolicyPushResult. */
  pushPolicy: { method: "POST", path: "/v1/push-network-policy", served: "coordinator" },
  /** ReclaimRequest → ReclaimResult. */
  reclaim: { method: "POST", path: "/v1/reclaim", served: "both" },
  /** query SandboxFilter + cursor → NDJSON WatchEvent. */
  watch: { method: "GET", path: "/v1/watch", served: "both" },
  /** query LayerQuery → NodeLayerList: layers that are in use, or whose heat is known. */
  listLayers: { method: "GET", path: "/v1/layers", served: "both" },
  /** LayerRelease → NodeLayerList: those of them that are still mounted, being in use. */
  releaseLayers: { method: "POST", path: "/v1/layers/release", served: "both" },
  /** → NodeStatus. */
  nodeStatus: { method: "GET", path: "/v1/node", served: "daemon" },
  /** → NodeStatus after fresh probes of every backend. */
  nodeDoctor: { method: "POST", path: "/v1/node/doctor", served: "daemon" },
  /** → NodeList. */
  listNodes: { method: "GET", path: "/v1/nodes", served: "coordinator" },
  /** NodeRegistration → 204; repeated as a heartbeat. */
  registerNode: { method: "PUT", path: "/v1/nodes/:name", served: "coordinator" },
  /** → NodeList after fresh probes. */
  doctor: { method: "POST", path: "/v1/doctor", served: "coordinator" },
  /** → 202; `dsec down`: the process ends, sandboxes stay for re-adoption unless query `sandboxes=stop`. */
  shutdown: { method: "POST", path: "/v1/shutdown", served: "coordinator" },
});

export type RouteName = keyof typeof routes;

/** Routes whose request or answer is content of any length. */
export const contentRoutes = ["readFile", "writeFile", "readArchive", "writeArchive"] as const;
export type ContentRoute = (typeof contentRoutes)[number];

/** Fills a path's parameters, each encoded as one segment. */
export function routePath(name: RouteName, params: Readonly<Record<string, string>> = {}): string {
  return routes[name].path.replace(/:([a-z]+)/g, (_, key: string) => {
    const value = params[key];
    if (value === undefined) throw new TypeError(`route ${name} needs ${key}`);
    return encodeURIComponent(value);
  });
}

/** Largest JSON request body, bytes. */
export const maxBodyBytes = 1_048_576;
/** The same where the body may hold a network policy: 10,000 rules at their longest are a few MiB. */
const maxPolicyBodyBytes = 8_388_608;
/** Routes that take policies of every size; the largest must be named before a sandbox can be made with them. */
const policyRoutes = ["placeSandbox", "setSandboxPolicy", "applyPolicy", "setPolicy", "pushPolicy"] as const;

/** Largest JSON body of a route, bytes. */
export function maxBodyOf(name: RouteName): number {
  return (policyRoutes as readonly RouteName[]).includes(name) ? maxPolicyBodyBytes : maxBodyBytes;
}
export const idempotencyHeader = "idempotency-key";
