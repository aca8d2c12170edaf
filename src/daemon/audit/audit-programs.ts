import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { DSecError } from "../../protocol/errors.ts";
import { findProgram } from "../resources/program.ts";

/** What an audit takes, by path. */
export interface AuditPrograms {
  /** Reads what the kernel tells. */
  readonly reader: string;
  /** Loaded into the kernel. */
  readonly object: string;
  /** Loads it. */
  readonly bpftool: string;
}

/** The kernel's own types, from which the loader knows where their fields are. */
const kernelTypes = "/sys/kernel/btf/vmlinux";

/** @throws DSecError `audit_unavailable`: what is missing, and in `details.fix` what mends it where one can tell */
export function findAuditPrograms(): AuditPrograms {
  if (process.geteuid?.() !== 0) throw unavailable("it takes root", "run the daemon as root");
  if (!existsSync(kernelTypes))
    throw unavailable(`the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): no ${kernelTypes}`);
  const bpftool = findProgram("bpftool");
  if (bpftool === undefined) throw unavailable("bpftool is not installed", "install bpftool");
  const [reader, object] = [builtFile("dsec-audit"), builtFile("audit.bpf.o")];
  if (!existsSync(reader)) throw unavailable(`${reader} was not built`, "npm run build");
  if (!existsSync(object))
    throw unavailable(`${object} was not built: it takes clang`, "install clang, then npm run build");
  return { reader, object, bpftool };
}

export function unavailable(reason: string, fix?: string): DSecError {
  return new DSecError("audit_unavailable", `processes of sandboxes cannot be audited here: ${reason}`, {
    ...(fix !== undefined && { details: { fix } }),
  });
}

/** Of the package this module belongs to, which runs either from src/ or from dist/src/. */
function builtFile(name: string): string {
  const fromSource = fileURLToPath(new URL(`../../../dist/audit/${name}`, import.meta.url));
  const fromBuild = fileURLToPath(new URL(`../../../audit/${name}`, import.meta.url));
  return existsSync(fromBuild) ? fromBuild : fromSource;
}
