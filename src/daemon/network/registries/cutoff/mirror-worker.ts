/** The thread of the mirrors: it takes documents of many megabytes apart, for which the daemon has no time. */
import { join } from "node:path";
import { getCACertificates } from "node:tls";
import { parentPort } from "node:worker_threads";
import type { ThreadEnd } from "../../../thread.ts";
import { FileCache } from "./file-cache.ts";
import type { Mirror, MirrorParts } from "./mirror.ts";
import { MirrorServer } from "./mirror-server.ts";
import { NpmMirror } from "./npm-mirror.ts";
import { PypiMirror } from "./pypi-mirror.ts";
import { Upstream } from "./upstream.ts";

/** A mirror that is asked for; it takes the place of the one of that name. */
export interface MirrorPlan {
  readonly name: string;
  readonly upstream: string;
  readonly domains: readonly string[];
  /** Milliseconds since the epoch. */
  readonly cutoff: number;
  readonly host: string;
  /** 0: any. */
  readonly port: number;
  /** For files that were fetched. */
  readonly cacheDir: string;
  /** Certificates to trust beside Node's own, PEM. */
  readonly ca: string | undefined;
}

export type MirrorRequest =
  { readonly type: "serve"; readonly plan: MirrorPlan } | { readonly type: "end"; readonly name: string };

export interface MirrorReply {
  /** Of `serve`: where it listens. */
  readonly port?: number;
  readonly failure?: string;
}

/** Bytes of the files of one registry. */
const cacheBytes = 4_294_967_296;

const kinds: Readonly<
  Record<string, new (parts: MirrorParts, upstream: Upstream, files: FileCache) => Mirror>
> = { npm: NpmMirror, pypi: PypiMirror };

const servers = new Map<string, MirrorServer>();

async function end(name: string): Promise<void> {
  await servers.get(name)?.close();
  servers.delete(name);
}

async function serve(plan: MirrorPlan): Promise<number> {
  await end(plan.name);
  const kind = kinds[plan.name];
  if (kind === undefined) throw new RangeError(`no mirror can be made of ${plan.name}`);
  const upstream = new Upstream({
    base: plan.upstream,
    domains: plan.domains,
    ...(plan.ca !== undefined && { ca: [...getCACertificates("default"), plan.ca] }),
  });
  const files = new FileCache(join(plan.cacheDir, plan.name), cacheBytes);
  const server = await MirrorServer.listen(plan.host, plan.port, (address) => {
    const parts = { cutoff: plan.cutoff, address, now: Date.now };
    return new kind(parts, upstream, files);
  });
  servers.set(plan.name, server);
  return server.port;
}

if (parentPort !== null) {
  const port = parentPort;
  let last = Promise.resolve();
  port.on("message", (request: MirrorRequest | ThreadEnd) => {
    // Ends the thread, with all that is on its way.
    if (request.type === "close") process.exit();
    // One after the other: the answers come in the order of the requests.
    last = last
      .then(async (): Promise<MirrorReply> => {
        if (request.type === "serve") return { port: await serve(request.plan) };
        await end(request.name);
        return {};
      })
      .catch((error: unknown) => ({ failure: error instanceof Error ? error.message : String(error) }))
      .then((reply) => port.postMessage(reply));
  });
}
