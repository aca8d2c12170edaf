/**
 * The thread that makes network namespaces: it enters each while it makes it, and the kernel's part takes about a
 * millisecond. Descriptors belong to the process, so the main thread can use what is opened here. It makes synchronous
 * calls only: what Node does on its own must not happen inside a sandbox's namespace.
 */
import { parentPort } from "node:worker_threads";
import { closeDescriptor, isErrno } from "../../backends/linux/libc.ts";
import {
  deleteAddress,
  deleteLink,
  deleteRoute,
  linkUp,
  NetlinkSocket,
  newAddress,
  newRoute,
  newVethPair,
  noAutomaticAddress,
  permanentNeighbour,
} from "../../backends/linux/netlink.ts";
import {
  inNewNetworkNamespace,
  linkIndex,
  openNetworkNamespace,
} from "../../backends/linux/network-namespace.ts";
import { addressBytes } from "./address-range.ts";

/** A namespace to be made: the name of its link on the host, and its address. */
export interface NamespacePlan {
  readonly link: string;
  readonly address: string;
}

export type WorkerRequest =
  /** Gives the node its address, and keeps packets to sandboxes that are gone from leaving the node. */
  | {
      readonly type: "claim" | "unclaim";
      readonly gateway: string;
      readonly network: string;
      readonly prefixLength: number;
    }
  | { readonly type: "make"; readonly gateway: string; readonly plans: readonly NamespacePlan[] }
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

/** Of the link's two ends; both follow from the address, so that they are unique and no service changes them. */
function macsOf(address: Buffer): { host: Buffer; inside: Buffer } {
  return {
    host: Buffer.concat([Buffer.from([0x02, 0xd5]), address]),
    inside: Buffer.concat([Buffer.from([0x02, 0xd6]), address]),
  };
}

function makeNamespace(home: number, host: NetlinkSocket, plan: NamespacePlan, gateway: Buffer): number {
  const address = addressBytes(plan.address);
  const mac = macsOf(address);
  let fd: number | undefined;
  let inside: NetlinkSocket | undefined;
  try {
    const insideIndex = inNewNetworkNamespace(home, () => {
      inside = new NetlinkSocket();
      fd = openNetworkNamespace();
      inside.request(
        newVethPair({ name: insideName, mac: mac.inside }, { name: plan.link, mac: mac.host }, home),
      );
      return linkIndex(insideName);
    });
    if (inside === undefined || fd === undefined) throw new Error("no namespace was made");
    inside.request(
      linkUp(loopback, { arp: true }),
      noAutomaticAddress(insideIndex),
      newAddress(insideIndex, address),
      linkUp(insideIndex, { arp: false }),
      newRoute({ destination: gateway, prefixLength: 32, link: insideIndex }),
      permanentNeighbour(insideIndex, gateway, mac.host),
    );
    const hostIndex = linkIndex(plan.link);
    host.request(
      noAutomaticAddress(hostIndex),
      linkUp(hostIndex, { arp: false }),
      newRoute({ destination: address, prefixLength: 32, link: hostIndex, source: gateway }),
      permanentNeighbour(hostIndex, address, mac.inside),
    );
    return fd;
  } catch (error) {
    // With its last descriptor the namespace goes, and with it the link.
    if (fd !== undefined) closeDescriptor(fd);
    throw error;
  } finally {
    inside?.close();
  }
}

function carryOut(home: number, host: NetlinkSocket, request: WorkerRequest): WorkerAnswer {
  switch (request.type) {
    case "claim":
    case "unclaim": {
      const gateway = addressBytes(request.gateway);
      const range = { destination: addressBytes(request.network), prefixLength: request.prefixLength };
      if (request.type === "claim") host.request(newAddress(loopback, gateway), newRoute(range));
      else
        ignoring(["EADDRNOTAVAIL", "ESRCH"], () =>
          host.request(deleteAddress(loopback, gateway), deleteRoute(range)),
        );
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
  const host = new NetlinkSocket();
  port.on("message", (request: WorkerRequest) => {
    let answer: WorkerAnswer;
    try {
      answer = carryOut(home, host, request);
    } catch (error) {
      answer = { failure: failureOf(error) };
    }
    port.postMessage(answer);
  });
}
