/**
 * The thread that makes network namespaces: it enters each while it makes it, and the kernel's part takes about a
 * millisecond. Descriptors belong to the process, so the main thread can use what is opened here. It makes synchronous
 * calls only: what Node does on its own must not happen inside a sandbox's namespace.
 */
import { writeFileSync } from "node:fs";
import { parentPort } from "node:worker_threads";
import { closeDescriptor, isErrno } from "../../backends/linux/libc.ts";
import {
  configureLink,
  deleteAddress,
  deleteLink,
  deleteMarkRule,
  deleteRoute,
  linkUp,
  newAddress,
  newMarkRule,
  newRoute,
  newVethPair,
  openRouteSocket,
  permanentNeighbour,
} from "../../backends/linux/netlink.ts";
import type { NetlinkSocket } from "../../backends/linux/netlink-socket.ts";
import {
  inNetworkNamespace,
  inNewNetworkNamespace,
  linkIndex,
  openNetworkNamespace,
} from "../../backends/linux/network-namespace.ts";
import type { ThreadEnd } from "../thread.ts";
import { addressBytes } from "./address-range.ts";

/** A namespace to be made: the name of its link on the host, and its address. */
export interface NamespacePlan {
  readonly link: string;
  readonly address: string;
}

export type WorkerRequest =
  /** Gives the node its address, keeps packets to sandboxes that are gone from leaving the node, and those for the proxy from passing it. */
  | {
      readonly type: "claim" | "unclaim";
      readonly gateway: string;
      readonly network: string;
      readonly prefixLength: number;
      /** Of packets for the proxy. */
      readonly proxyMark: number;
    }
  | { readonly type: "make"; readonly gateway: string; readonly plans: readonly NamespacePlan[] }
  /** `namespace`: a descriptor of one that is there, with nothing but loopback. */
  | {
      readonly type: "join";
      readonly gateway: string;
      readonly plan: NamespacePlan;
      readonly namespace: number;
    }
  | { readonly type: "delete"; readonly links: readonly string[] };

interface Failure {
  /** An errno's name. */
  readonly code: string;
  readonly message: string;
}

export type MadeNamespace = { readonly fd: number } | { readonly failure: Failure };

export interface WorkerAnswer {
  readonly failure?: Failure;
  /** Of `make`, in the order of the plans. */
  readonly made?: readonly MadeNamespace[];
}

const loopback = 1;
const insideName = "eth0";
const everyGroup = "0 2147483647";
const everything = { destination: Buffer.alloc(4), prefixLength: 0 } as const;
/** Before the main table's. */
const rulePriority = 213;

/** Of the link's two ends; both follow from the address, so that they are unique and no service changes them. */
function macsOf(address: Buffer): { host: Buffer; inside: Buffer } {
  return {
    host: Buffer.concat([Buffer.from([0x02, 0xd5]), address]),
    inside: Buffer.concat([Buffer.from([0x02, 0xd6]), address]),
  };
}

/** The namespace of the calling thread, and how to do something in another. */
interface Passage {
  readonly home: number;
  readonly enter: <T>(work: () => T) => T;
}

/** Makes a link between home and the other namespace, and sets up both ends. */
function connect({ home, enter }: Passage, host: NetlinkSocket, plan: NamespacePlan, gateway: Buffer): void {
  const address = addressBytes(plan.address);
  const mac = macsOf(address);
  let inside: NetlinkSocket | undefined;
  try {
    const insideIndex = enter(() => {
      inside = openRouteSocket();
      // The thread's namespace's own. Without raw sockets nothing else sends pings; whether they go out is up to the policy.
      writeFileSync("/proc/sys/net/ipv4/ping_group_range", everyGroup);
      inside.request(
        newVethPair({ name: insideName, mac: mac.inside }, { name: plan.link, mac: mac.host }, home),
      );
      return linkIndex(insideName);
    });
    if (inside === undefined) throw new Error("the namespace was not entered");
    inside.request(
      linkUp(loopback, { arp: true }),
      configureLink(insideIndex, { forwarding: false }),
      newAddress(insideIndex, address),
      linkUp(insideIndex, { arp: false }),
      newRoute({ destination: gateway, prefixLength: 32, link: insideIndex }),
      newRoute({ ...everything, link: insideIndex, via: gateway }),
      permanentNeighbour(insideIndex, gateway, mac.host),
    );
    const hostIndex = linkIndex(plan.link);
    host.request(
      configureLink(hostIndex, { forwarding: true }),
      linkUp(hostIndex, { arp: false }),
      newRoute({ destination: address, prefixLength: 32, link: hostIndex, source: gateway }),
      permanentNeighbour(hostIndex, address, mac.inside),
    );
  } finally {
    inside?.close();
  }
}

function makeNamespace(home: number, host: NetlinkSocket, plan: NamespacePlan, gateway: Buffer): number {
  let fd: number | undefined;
  const enter = <T>(work: () => T): T =>
    inNewNetworkNamespace(home, () => {
      fd = openNetworkNamespace();
      return work();
    });
  try {
    connect({ home, enter }, host, plan, gateway);
    if (fd === undefined) throw new Error("no namespace was made");
    return fd;
  } catch (error) {
    // With its last descriptor the namespace goes, and with it the link.
    if (fd !== undefined) closeDescriptor(fd);
    throw error;
  }
}

function joinNamespace(
  home: number,
  host: NetlinkSocket,
  { plan, namespace, gateway }: Extract<WorkerRequest, { type: "join" }>,
): void {
  const enter = <T>(work: () => T): T => inNetworkNamespace(home, namespace, work);
  try {
    connect({ home, enter }, host, plan, addressBytes(gateway));
  } catch (error) {
    // A link of that name that was there before is another's.
    if (!isErrno(error, "EEXIST")) ignoring(["ENODEV"], () => host.request(deleteLink(plan.link)));
    throw error;
  }
}

function carryOut(home: number, host: NetlinkSocket, request: WorkerRequest): WorkerAnswer {
  switch (request.type) {
    case "claim":
    case "unclaim": {
      const gateway = addressBytes(request.gateway);
      const range = { destination: addressBytes(request.network), prefixLength: request.prefixLength };
      const table = request.proxyMark;
      const rule = { mark: request.proxyMark, table, priority: rulePriority };
      const toProxy = { ...everything, link: loopback, type: "local", table } as const;
      if (request.type === "claim") {
        host.request(newAddress(loopback, gateway), newRoute(range), newRoute(toProxy));
        ignoring(["EEXIST"], () => host.request(newMarkRule(rule)));
      } else {
        ignoring(["EADDRNOTAVAIL", "ESRCH", "ENOENT"], () =>
          host.request(
            deleteAddress(loopback, gateway),
            deleteRoute(range),
            deleteRoute(toProxy),
            deleteMarkRule(rule),
          ),
        );
      }
      return {};
    }
    case "make": {
      const gateway = addressBytes(request.gateway);
      return {
        made: request.plans.map((plan) => {
          try {
            return { fd: makeNamespace(home, host, plan, gateway) };
          } catch (error) {
            return { failure: failureOf(error) };
          }
        }),
      };
    }
    case "join":
      joinNamespace(home, host, request);
      return {};
    case "delete":
      for (const link of request.links) ignoring(["ENODEV"], () => host.request(deleteLink(link)));
      return {};
  }
}

function ignoring(codes: readonly string[], work: () => void): void {
  try {
    work();
  } catch (error) {
    if (!isErrno(error, ...codes)) throw error;
  }
}

function failureOf(error: unknown): Failure {
  const message = error instanceof Error ? error.message : String(error);
  const code = error instanceof Error && "code" in error ? String(error.code) : "UNKNOWN";
  return { code, message };
}

if (parentPort !== null) {
  const port = parentPort;
  const home = openNetworkNamespace();
  const host = openRouteSocket();
  port.on("message", (request: WorkerRequest | ThreadEnd) => {
    if (request.type === "close") {
      host.close();
      closeDescriptor(home);
      port.close();
      return;
    }
    let answer: WorkerAnswer;
    try {
      answer = carryOut(home, host, request);
    } catch (error) {
      answer = { failure: failureOf(error) };
    }
    port.postMessage(answer);
  });
}
