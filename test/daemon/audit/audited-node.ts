import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { findAuditPrograms } from "../../../src/daemon/audit/audit-programs.ts";
import { DSecError } from "../../../src/protocol/errors.ts";
import { temporaryDir } from "../daemon-fixture.ts";
import { output } from "../temporary-node.ts";

const run = promisify(execFile);

/** What an audit lacks here; undefined where it lacks nothing. */
export function missingForAudit(): string | undefined {
  try {
    findAuditPrograms();
    return undefined;
  } catch (error) {
    if (error instanceof DSecError) return error.message;
    throw error;
  }
}

/** Ids of the programs in the kernel that an audit has loaded, whoever's. */
export async function loadedPrograms(): Promise<number[]> {
  const programs = JSON.parse(await output("bpftool", "prog", "show", "-j")) as {
    id: number;
    name?: string;
  }[];
  return programs.filter(({ name }) => name === "on_connect4" || name === "on_exec").map(({ id }) => id);
}

/** A command for any sandbox that runs connects.c; the program is in its arguments, which are longer than an event can tell. */
export async function connects(port: number, count: number): Promise<string[]> {
  const program = join(await temporaryDir(), "connects");
  const source = join(import.meta.dirname, "connects.c");
  await run("musl-gcc", ["-static", "-Os", "-s", "-Wall", "-Werror", "-o", program, source]);
  const script =
    'echo "$3" | base64 -d > /tmp/connects && chmod +x /tmp/connects && exec /tmp/connects "$1" "$2"';
  return ["sh", "-c", script, "sh", `${port}`, `${count}`, (await readFile(program)).toString("base64")];
}
