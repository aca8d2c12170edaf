import { z } from "zod";

/** Lower-case DNS label: node names, sandbox names. */
const dnsLabel = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

export const NodeName = z.string().regex(dnsLabel, "must be a lower-case DNS label of at most 63 characters");

/** A name a user gives a sandbox; unique on the fleet while the sandbox's record exists. */
export const SandboxName = z
  .string()
  .regex(dnsLabel, "must be a lower-case DNS label of at most 63 characters");

/** `<node>-<10 characters of base32>`: the id names its node, so any coordinator can forward without a look-up. */
export const SandboxId = z
  .string()
  .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?-[a-z2-7]{10}$/, "must be <node>-<10 characters a-z2-7>");

/** What a client may give for a sandbox: an id, a name, or a unique prefix of an id. */
export const SandboxRef = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,79}$/, "must be a sandbox id, a unique prefix of one, or a name");

export const LabelKey = z
  .string()
  .regex(
    /^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$/,
    "must be 1 to 128 letters, digits, '.', '_', '/' or '-'",
  );
export const Labels = z
  .record(LabelKey, z.string().max(256))
  .refine((labels) => Object.keys(labels).length <= 64, "at most 64 labels");

const suffixAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
const suffixLength = 10;

/** Makes a sandbox id on `node` from at least 10 random bytes. */
export function sandboxIdFrom(node: string, random: Uint8Array): string {
  let suffix = "";
  for (const byte of random.subarray(0, suffixLength)) suffix += suffixAlphabet.charAt(byte & 31);
  return `${node}-${suffix}`;
}

/** The node that a full sandbox id names; undefined when `ref` is not a full id. */
export function nodeOfSandboxId(ref: string): string | undefined {
  return SandboxId.safeParse(ref).success ? ref.slice(0, -(suffixLength + 1)) : undefined;
}
