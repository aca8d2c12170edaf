import type { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
export function openDial(_link: unknown, _port: number, _host?: string): Promise<Duplex> {
  return Promise.reject(new DSecError("unsupported", "not yet"));
}
