import { DSecError } from "../protocol/errors.ts";
import type { Finding } from "./resources/open-scratch.ts";

/** A part of the node that works, or why it does not. */
export type Part<T> = { readonly value: T } | { readonly error: DSecError };

/** Sets a part up. What fails is its error. @param name for people */
export async function openPart<T>(name: string, work: () => Promise<T>): Promise<Part<T>> {
  try {
    return { value: await work() };
  } catch (error) {
    if (error instanceof DSecError) return { error };
    return { error: new DSecError("backend_unavailable", `the ${name} cannot be set up`, { cause: error }) };
  }
}

/** @throws DSecError why the part does not work */
export function need<T>(part: Part<T>): T {
  if ("value" in part) return part.value;
  throw part.error;
}

const fixes: Partial<Record<DSecError["code"], string>> = {
  address_in_use: "dsec up --network-range RANGE",
  backend_unavailable: "npm run setup",
  permission_denied: "run the daemon as root",
};

/** What to tell of it. */
export function findingOf(error: DSecError): Finding {
  const messages: string[] = [];
  for (let part: unknown = error; part instanceof Error; part = part.cause) messages.push(part.message);
  const fix = fixes[error.code];
  return { level: "error", message: messages.join(": "), ...(fix !== undefined && { fix }) };
}
