import { DSecError } from "../../protocol/errors.ts";
import { runProgram } from "../resources/program.ts";

/**
 * The rules that hold for every sandbox of an instance, whichever of its links comes and goes: from inside come replies to
 * connections that the host opened, with the source address that the link was given, and nothing else.
 *
 * An accept here is not final: the host's own tables judge the packet too. A drop is.
 */
export function firewallRules(table: string, linkPrefix: string): string {
  return `table inet ${table}
delete table inet ${table}
table inet ${table} {
  chain source {
    type filter hook prerouting priority raw; policy accept;
    iifname "${linkPrefix}*" fib saddr . iif oif missing counter drop
  }
  chain input {
    type filter hook input priority filter - 10; policy accept;
    iifname "${linkPrefix}*" ct state established ct direction reply accept
    iifname "${linkPrefix}*" counter drop
  }
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    iifname "${linkPrefix}*" counter drop
    oifname "${linkPrefix}*" counter drop
  }
}
`;
}

/** Puts the rules in force, in one transaction, in place of those of an earlier daemon. @throws DSecError `backend_unavailable` */
export async function applyFirewall(table: string, linkPrefix: string): Promise<void> {
  try {
    await runProgram("nft", ["-f", "-"], { input: firewallRules(table, linkPrefix) });
  } catch (error) {
    throw new DSecError(
      "backend_unavailable",
      "the rules that keep sandboxes off the network cannot be put in force",
      { cause: error },
    );
  }
}

/** Removes the table, if it is there. */
export async function removeFirewall(table: string): Promise<void> {
  await runProgram("nft", ["-f", "-"], { input: `table inet ${table}\ndelete table inet ${table}\n` });
}
