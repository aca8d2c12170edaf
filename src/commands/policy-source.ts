import { readFile } from "node:fs/promises";
import { text as readAll } from "node:stream/consumers";
import { DSecError } from "../protocol/errors.ts";
import type { NetworkPolicy } from "../protocol/network-policy.ts";
import { type PolicyTexts, policyTextsFrom } from "../protocol/policy-texts.ts";
import type { DSecClient } from "../sdk/index.ts";
import type { Io } from "./io.ts";
import { choice, many, text } from "./option.ts";
import type { OptionValues } from "./option.ts";

/** Flags that say what a policy's rules are. */
export const ruleOptions = {
  file: text("-f, --file <file>", "YAML or JSON with default, allow and deny; - for stdin"),
  allow: many("--allow <rule>", "what can be reached: npm, *.example.com:443, 10.0.0.0/8", (given) => given),
  deny: many("--deny <rule>", "what cannot be reached, whatever else allows it", (given) => given),
  otherwise: choice("--default <action>", "deny|allow what no rule is about; deny unless given", [
    "deny",
    "allow",
  ]),
};

/** A policy's name with, perhaps, its version. */
export interface PolicyName {
  readonly name: string;
  readonly version: number | undefined;
}

/** What stands before a sandbox's reference where a policy's name could stand, too. */
const sandboxPrefix = "sandbox/";

/** Whether any of {@link ruleOptions} is given. */
export function givesRules(options: OptionValues<typeof ruleOptions>): boolean {
  const { file, allow, deny, otherwise } = options;
  return file !== undefined || otherwise !== undefined || allow.length + deny.length > 0;
}

/** The file's rules and those of the flags. @throws DSecError `invalid_argument` */
export async function rulesOf(options: OptionValues<typeof ruleOptions>, io: Io): Promise<PolicyTexts> {
  if (!givesRules(options))
    throw new DSecError("invalid_argument", "say what the rules are: --file, --allow, --deny or --default");
  const base = options.file === undefined ? {} : await readPolicyFile(options.file, io);
  return {
    default: options.otherwise ?? base.default ?? "deny",
    allow: [...(base.allow ?? []), ...options.allow],
    deny: [...(base.deny ?? []), ...options.deny],
  };
}

/** `name`, `name@3`. @throws DSecError `invalid_argument` */
export function parsePolicyName(given: string): PolicyName {
  const [, name, version] = /^([^@]+)(?:@(\d+))?$/.exec(given) ?? [];
  if (name === undefined)
    throw new DSecError(
      "invalid_argument",
      `${JSON.stringify(given)} is no policy: give NAME or NAME@VERSION`,
    );
  return { name, version: version === undefined ? undefined : Number(version) };
}

/** The reference in `sandbox/REF`; undefined for what is a policy's name. */
export function sandboxIn(given: string): string | undefined {
  return given.startsWith(sandboxPrefix) ? given.slice(sandboxPrefix.length) : undefined;
}

/** Of `NAME`, `NAME@VERSION` or `sandbox/REF`. */
export async function findPolicy(fleet: DSecClient, given: string): Promise<NetworkPolicy> {
  const ref = sandboxIn(given);
  if (ref !== undefined) return (await (await fleet.get(ref)).networkPolicy()).policy;
  const { name, version } = parsePolicyName(given);
  return (await fleet.policies.get(name, version === undefined ? {} : { version })).policy;
}

async function readPolicyFile(file: string, io: Io): Promise<PolicyTexts> {
  const content = file === "-" ? await readAll(io.stdin) : await readText(file);
  const { parse } = await import("yaml");
  let document: unknown;
  try {
    document = parse(content);
  } catch (cause) {
    throw new DSecError("invalid_argument", `--file ${file} is neither YAML nor JSON`, { cause });
  }
  try {
    return policyTextsFrom(document);
  } catch (cause) {
    throw new DSecError("invalid_argument", `--file ${file} is no policy`, { cause });
  }
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new DSecError("invalid_argument", `--file ${file} cannot be read`, { cause });
  }
}
