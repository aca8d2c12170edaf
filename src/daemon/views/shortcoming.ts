import type { BackendReport } from "../../protocol/node.ts";

/**
 * Why a node that was to run containers by runc, which every node is unless told otherwise, does not. Undefined where it
 * does, or was told otherwise.
 */
export function shortcomingOf(reports: readonly BackendReport[]): string | undefined {
  const runc = reports.find(({ engine }) => engine === "runc");
  if (runc === undefined || runc.works) return undefined;
  const finding = runc.findings.find(({ level }) => level === "error")?.message ?? "the reason is not known";
  const others = reports.some(({ backend, works }) => backend === "container" && works);
  return `containers${others ? " by runc" : ""} do not work here: ${finding}`;
}
